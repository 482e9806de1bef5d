"""Searches of sweeps: one that cannot go on is its own trouble, and its limits are its tenant's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from weft.app.serve.rules import TenantLimits
from weft.core.model.job import Job, JobId
from weft.runtime.records.job_records import JobRecord
from weft.service.budget.sizes import check_sweep
from weft.service.http.replies import HttpProblem
from weft.service.jobs import searches
from weft.service.jobs.searches import OpenSearch, Searches
from weft.service.requests.job_file import JobFile, expand, job_of, search_of

LEARNS = {"search": "optuna", "space": {"x": ["a", "b"]}, "trials": 9, "metric": "loss"}
HALVES = {"search": "asha", "space": {"x": ["a"]}, "trials": 2, "metric": "loss"}


class Jobs(dict[JobId, JobRecord]):
    following = 0


class Service:
    """As much of a service as a search looks at."""

    def __init__(self) -> None:
        self.jobs, self.incoming = Jobs(), dict[JobId, Job]()
        self.submitted: list[Job] = []
        self.tokens: list[str] = []
        self.searches_over: dict[str, str] = {}
        self.work = SimpleNamespace(sample=SimpleNamespace(do=lambda work: self.read(work())))
        self.limits = TenantLimits()
        self.live = SimpleNamespace(quotas=SimpleNamespace(guaranteed={"t": 8.0}))
        self.active_of: dict[str, int] = {"t": 0}
        state = SimpleNamespace(table=SimpleNamespace(jobs=[]))
        ledger = SimpleNamespace(jobs=self.jobs)
        self.jobs.active, self.jobs.active_of = {}, self.active_of  # type: ignore[attr-defined]
        self.driver: Any = SimpleNamespace(
            ledger=ledger,
            now=0.0,
            incoming=self.incoming,
            scheduler=SimpleNamespace(state=state),
            submit=self.submit,
        )

    async def read(self, work: Callable[[], Any]) -> Any:
        return work()

    async def submit(self, job: Job) -> None:
        self.submitted.append(job)

    def add(self, name: str, sweep: dict[str, Any], outcome: str = "", **more: Any) -> OpenSearch:
        """A sweep whose first trials were submitted."""
        body = JobFile.model_validate({"command": ["train", "${x}"], "sweep": sweep, **more})
        terms = search_of(body)
        assert terms is not None
        for single, values in expand(body, name):
            job = job_of(single, tenant="t", user="u", parameters=values, search=terms)
            self.jobs[job.id] = JobRecord(job, 0.0, outcome=outcome)
        return OpenSearch(terms)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(searches, "sample", lambda *_: {"x": "a"})
    return Service()


def settle(service: Service, **open_searches: OpenSearch) -> Searches:
    made = Searches(service)  # type: ignore[arg-type]
    made._open.update(open_searches)
    asyncio.run(made.poll())
    return made


def test_a_search_that_cannot_go_on_keeps_no_other_from_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(searches, "sample", lambda *_: {"x": "&&"})  # no command may have it
    bad = service.add("bad", LEARNS, "succeeded", env={"WORD": "hush-hush"})
    halves = service.add("good", HALVES)

    made = settle(service, bad=bad, good=halves)

    assert set(made._open) == {"good"}
    assert "search of sweep bad is over" in caplog.text
    assert "hush" not in caplog.text


def test_what_will_pass_ends_no_search(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(_: Job) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(service.driver, "submit", full)

    made = settle(service, tune=service.add("tune", LEARNS, "succeeded", max_parallel=1))

    assert set(made._open) == {"tune"}


def test_a_job_of_another_app_is_no_trial(service: Service) -> None:
    tune = service.add("tune", LEARNS, "succeeded", max_parallel=1)
    (first,) = service.jobs.values()
    planted = replace(first.job, id=JobId("tune.1"), app="")
    service.jobs[planted.id] = JobRecord(planted, 0.0)

    made = settle(service, tune=tune)

    assert [job.id for job in service.submitted] == ["tune.1"]  # which the driver refuses
    assert set(made._open) == {"tune"}


@pytest.mark.parametrize(
    ("priority", "active", "jobs", "admitted"),
    [
        ("normal", 1, 2, True),
        ("normal", 2, 2, False),
        ("guaranteed", 1, 0, True),
        ("guaranteed", 8, 0, False),
    ],
)
def test_later_trials_wait_for_the_limits_of_their_tenant(
    service: Service, priority: str, active: int, jobs: int, *, admitted: bool
) -> None:
    service.tokens = ["someone's"]
    service.limits = TenantLimits(jobs=jobs)
    tune = service.add("tune", LEARNS, "succeeded", max_parallel=1, priority=priority)
    (first,) = service.jobs.values()
    service.active_of["t"] = active
    others = [replace(first.job, id=JobId(f"other-{n}")) for n in range(active)]
    service.driver.scheduler.state.table.jobs = others

    made = settle(service, tune=tune)

    assert [job.id for job in service.submitted] == ["tune.1"] * admitted
    assert set(made._open) == {"tune"}


def test_each_trial_of_a_search_that_learns_weighs_its_whole_job_file() -> None:
    values = [f"{n}{'x' * 99}" for n in range(1000)]
    sweep = {**LEARNS, "space": {"x": values}, "trials": 1000}
    asked = JobFile.model_validate({"command": ["train"], "sweep": sweep})

    with pytest.raises(HttpProblem, match="MB together"):
        check_sweep(asked)
