"""Lists of jobs that change while they are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.cli.connect.client import ACTIVE, active_jobs


class Moving:
    """A service whose one job goes on to another state after so many questions."""

    def __init__(self, before: str, after: str, questions: int) -> None:
        self._states, self._left = [before, after], questions

    def get(self, _: type, __: str, *, state: str, **___: Any) -> Any:
        now = self._states[0 if self._left > 0 else 1]
        self._left -= 1
        job = SimpleNamespace(id="job", submitted=0.0)
        return SimpleNamespace(jobs=[job] if state == now else [], next=None)


@pytest.mark.parametrize("before", ACTIVE)
@pytest.mark.parametrize("after", ACTIVE)
def test_a_job_that_changes_its_state_meanwhile_is_there(before: str, after: str) -> None:
    for questions in range(2 * len(ACTIVE) + 1):
        client: Any = Moving(before, after, questions)

        assert [job.id for job in active_jobs(client)] == ["job"], questions
