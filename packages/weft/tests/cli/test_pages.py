"""Lists of jobs that change while they are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, get_args

from weft.cli.connect.client import ACTIVE, active_jobs
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
