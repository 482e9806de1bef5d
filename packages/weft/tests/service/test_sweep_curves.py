"""Metrics of a sweep: written beside the loop, and a page of them has an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from weft.core.model.job import Demand, Job, JobId
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.metrics import JobMetrics, Series
from weft.service.access.tokens import ANYBODY
from weft.service.routes.jobs import curves


class Service:
    """As much of a service as the route reads; `reading` while it is beside the loop."""

    def __init__(self, records: list[JobRecord]) -> None:
        self.reading = False
        self.searches_over: dict[str, str] = {}
        jobs = SimpleNamespace(
            get=lambda job: next(each for each in records if each.job.id == job),
            page_reader=lambda limit, after, **_: lambda: records[after + 1 : after + 1 + limit],
        )
        state = SimpleNamespace(table=SimpleNamespace(jobs=[]), asleep={})
        self.names = SimpleNamespace(find_app=lambda app, _: app)
        self.driver = SimpleNamespace(
            ledger=SimpleNamespace(jobs=jobs), scheduler=SimpleNamespace(state=state)
        )

    async def read(self, work: Callable[[], Any]) -> Any:
        self.reading = True
        try:
            return work()
        finally:
            self.reading = False


def record(number: int) -> JobRecord:
    series = Series()
    for step in range(10):
        series = series.add(step, 0.5, 1.0, 10)
    job = Job(JobId(f"tune.{number}"), demand=Demand(0), app="tune")
    metrics = JobMetrics(series={"loss": series, "acc": series})
    return JobRecord(job, 0.0, outcome="succeeded", number=number, metrics=metrics)


def ask(service: Service, form: str, after: str | None = None) -> bytes:
    asked: Any = (service, ANYBODY, [], form, 240, 200, after)
    return bytes(asyncio.run(curves.sweep_metrics("tune", *asked)).body)


def test_a_page_ends_once_it_has_enough_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_POINTS", 50)
    service = Service([record(number) for number in range(4)])

    first = json.loads(ask(service, "json"))
    rest = json.loads(ask(service, "json", after=first["next"]))

    assert [job["id"] for job in first["jobs"]] == ["tune.0", "tune.1", "tune.2"]
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (["tune.3"], None)


@pytest.mark.parametrize(("form", "writer"), [("csv", "as_csv"), ("json", "Json")])
def test_a_page_is_written_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, form: str, writer: str
) -> None:
    service, write, beside = Service([record(0)]), getattr(curves, writer), []

    def noted(*args: Any) -> Any:
        beside.append(service.reading)
        return write(*args)

    monkeypatch.setattr(curves, writer, noted)

    assert b"tune.0" in ask(service, form)
    assert beside == [True]
