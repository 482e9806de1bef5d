"""A running job that stopped reporting is remarked upon, one that never did is not."""

from __future__ import annotations

import asyncio

from weft.core.events.event import Decided, Event, Reported, Started, Stopped, Submitted
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.perf.replay import Replay
from weft.runtime.loop.driver import Driver
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.status import JobStatus
from weft.service.jobs.job_view import JobView, silent_s
from weft.service.responses.answers import JobAnswer
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore

A = JobId("a")
ON = Allocation((Slice(NodeId("n"), (0,)),))
BEGUN: tuple[tuple[float, Event], ...] = (
    (0.0, Submitted(Job(A, demand=Demand(1)))),
    (0.0, Decided(1, {A: ON})),
    (0.0, Started(A, 1)),
)


def record_with_reports(*at: float) -> JobRecord:
    ledger = Ledger()
    for when, event in (
        *BEGUN,
        *((time, Reported(A, 1, Report(progress=0.1, steps=5.0))) for time in at),
    ):
        ledger.fold(when, event)
    return ledger.jobs[A]


def test_half_a_minute_without_a_word_is_remarkable() -> None:
    record = record_with_reports(1.0, 2.0)

    assert silent_s(record, 20.0) is None
    assert silent_s(record, 42.0) == 40.0


def test_who_reports_seldom_is_given_longer() -> None:
    record = record_with_reports(60.0, 120.0)

    assert silent_s(record, 200.0) is None
    assert silent_s(record, 320.0) == 200.0


def test_a_command_that_never_reports_is_not_silent() -> None:
    assert silent_s(record_with_reports(), 1e6) is None


def test_simulated_time_that_runs_fast_is_counted_by_the_wall() -> None:
    assert silent_s(record_with_reports(1.0, 2.0), 1002.0, speed=100.0) is None
    assert silent_s(record_with_reports(1.0, 2.0), 4002.0, speed=100.0) == 40.0


def test_a_new_attempt_begins_without_a_word() -> None:
    ledger = Ledger()
    for at, event in (
        *BEGUN,
        (1.0, Reported(A, 1)),
        (2.0, Decided(2, {A: None})),
        (3.0, Stopped(A, 1)),
        (4.0, Decided(3, {A: ON})),
    ):
        ledger.fold(at, event)
    assert ledger.jobs[A].heard == (1.0, 0.0)

    ledger.fold(5.0, Started(A, 2))

    assert ledger.jobs[A].heard is None


class Processes(SimulatedEngine):
    """Says that its jobs are processes; simulated ones speak when something changes."""

    real = True


def test_people_read_it_as_the_reason_while_the_state_stays() -> None:
    async def described() -> tuple[JobAnswer, JobAnswer]:
        engine = Processes("1x1:a100", speed=1.0, perf=Replay())
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        try:
            describe = JobView(driver)
            fresh, old = (
                record_with_reports(driver.now - 1.0),
                record_with_reports(driver.now - 41.0, driver.now - 40.0),
            )
            return (
                describe.describe_job(JobStatus(fresh, "running")),
                describe.describe_job(JobStatus(old, "running")),
            )
        finally:
            await driver.close()

    fresh, old = asyncio.run(described())

    assert (fresh.state, fresh.reason, fresh.silent_s) == ("running", "", None)
    assert (old.state, old.reason) == ("running", "no heartbeat for 40 s")


def test_a_job_that_does_not_use_its_gpus_is_told_so_although_it_is_silent() -> None:
    async def described() -> JobAnswer:
        engine = Processes("1x1:a100", speed=1.0, perf=Replay())
        driver = Driver(engine, MemoryStore(), policy="fifo")
        await driver.open()
        try:
            old = record_with_reports(driver.now - 2_001.0, driver.now - 2_000.0)
            driver.ledger.idle.find_idle([old], driver.now - 2_000.0)
            driver.ledger.idle.find_idle([old], driver.now)
            return JobView(driver).describe_job(JobStatus(old, "running"))
        finally:
            await driver.close()

    assert asyncio.run(described()).reason.startswith("holds 1 ")
