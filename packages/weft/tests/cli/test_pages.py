"""Lists of jobs that change while they are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

import pytest

from weft.cli.connect.client import ACTIVE, RequestRefused, active_jobs, every_job
from weft.cli.view.words import ENDED
from weft.service.responses.job_row import StateWord


def test_jobs_that_have_not_ended_are_asked_for_in_one_list() -> None:
    asked = list[dict[str, Any]]()

    def get(_: type, __: str, **query: Any) -> Any:
        asked.append(query)
        return SimpleNamespace(jobs=[f"job{len(asked)}"], next="job1" if len(asked) == 1 else None)

    client: Any = SimpleNamespace(get=get)

    listed: list[Any] = active_jobs(client, tenant="nlp")

    assert listed == ["job1", "job2"]
    assert {query["state"] for query in asked} == {",".join(ACTIVE)}
    assert [query["after"] for query in asked] == [None, "job1"]
    assert {*ACTIVE, *ENDED} == {*get_args(StateWord)}


def test_a_service_that_takes_one_state_is_asked_for_one_after_the_other() -> None:
    """As 0.2.0 does; a word that is no state is refused as before."""
    jobs = {"running": [3.0], "pending": [1.0, 4.0], "suspended": [2.0]}

    def get(_: type, __: str, state: str, **___: Any) -> Any:
        if state not in get_args(StateWord):
            refusal = RequestRefused(f"{state!r} is no state")
            refusal.field = "state"
            raise refusal
        rows = [SimpleNamespace(submitted=at) for at in jobs.get(state, ())]
        return SimpleNamespace(jobs=rows, next=None)

    client: Any = SimpleNamespace(get=get)

    assert [job.submitted for job in active_jobs(client)] == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(RequestRefused, match="'walking'"):
        list(every_job(client, state="running,walking"))
