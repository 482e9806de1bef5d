"""Ended jobs leave the memory for the store's table, and the log and the table always agree."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.core import scheduler
from weft.core.errors import EngineError, StoreError
from weft.core.events.event import Event
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.protocols import Store
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.perf.replay import Replay
from weft.policies.fifo import Fifo
from weft.predict.history import HistoryPredictor
from weft.runtime.deciding.decider import Decider, InProcess
from weft.runtime.loop import driver as driver_module
from weft.runtime.loop import messages as log_failure
from weft.runtime.loop.driver import Driver
from weft.runtime.records import job_records as shelving
from weft.runtime.records.job_records import JobRecord
from weft.runtime.recovery import recover as recovering
from weft.runtime.recovery.recover import Recovered, freeze, recover
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore


def knowledge() -> Knowledge:
    return Knowledge(HistoryPredictor())


def make() -> Scheduler:
    return Scheduler(Fifo(), Cluster(()), knowledge=knowledge())


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelving, "AT_ONCE", 10)
    monkeypatch.setattr(shelving, "PAUSE_S", 0.0)
    monkeypatch.setattr(recovering, "PUT_AT_ONCE", 20)
    monkeypatch.setattr(scheduler, "ENDED_KEPT", 5)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "events.db")


async def run_jobs(driver: Driver, first: int, count: int) -> None:
    names = [JobId(f"j{i}") for i in range(first, first + count)]
    for i, name in enumerate(names):
        hints = {"duration_s": 20.0 + 7.0 * (i % 5)}
        await driver.submit(Job(name, demand=Demand(1 + i % 3), tenant=f"t{i % 2}", hints=hints))
        if i % 7 == 3:
            await driver.cancel(name)
    for name in names:
        await driver.ended(name)


@asynccontextmanager
async def opened(
    store: Store, every: int = 60, decider: Decider | None = None
) -> AsyncIterator[Driver]:
    engine = SimulatedEngine("1x4:a100", speed=20_000.0, perf=Replay())
    driver = Driver(
        engine, store, policy="fifo", knowledge=knowledge, snapshot_every=every, decider=decider
    )
    await driver.open()
    yield driver
    await driver.close()


def read_whole(store: Store) -> Recovered:
    """By the log alone, into a table of its own."""
    fresh = MemoryStore()
    fresh.append([(at, event) for _, at, event in store.since(0)])
    return recover(fresh, make)


def test_memory_and_snapshots_do_not_grow_with_the_jobs_that_ended(store: SqliteStore) -> None:
    held: list[tuple[int, int, int]] = []

    async def life() -> None:
        async with opened(store) as driver:
            for round_ in range(5):
                await run_jobs(driver, 60 * round_, 60)
                await driver._shelf.finish()
                frozen = freeze(driver._known)
                frozen = replace(
                    frozen, head={**frozen.head, "past": {}}
                )  # as many as hours went by
                size = len(b"".join(frozen.parts()))
                held.append((len(driver.ledger.jobs), len(driver.ledger.jobs.live), size))

    asyncio.run(life())
    store.close()

    known, live, sizes = (list(column) for column in zip(*held, strict=True))
    assert known == [60, 120, 180, 240, 300]
    assert max(live) < 60
    learnt = 64 * (known[-1] - known[0])  # bytes: what is learnt of a job
    on_their_way = 512 * max(live[-1] - live[0], 0)  # to the table, as many as there happen to be
    assert sizes[-1] - sizes[0] < learnt + on_their_way


def leave_as_a_crash_would(path: Path, copy: Path) -> None:
    """All that is on disk at one moment: a snapshot may be on its way there meanwhile."""
    with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(copy)) as here:
        there.backup(here)


@pytest.mark.parametrize("every", [40, 10_000])
def test_after_a_crash_the_table_and_the_log_agree(tmp_path: Path, every: int) -> None:
    """The table is ahead of the last snapshot, by some jobs or by all of them."""
    (tmp_path / "now").mkdir()
    (tmp_path / "later").mkdir()
    store = SqliteStore(tmp_path / "now" / "events.db")

    async def life() -> None:
        async with opened(store, every) as driver:
            await run_jobs(driver, 0, 100)
            await driver._shelf.finish()
            leave_as_a_crash_would(tmp_path / "now" / "events.db", tmp_path / "later" / "events.db")

    asyncio.run(life())
    store.close()

    left = SqliteStore(tmp_path / "later" / "events.db")
    assert sum(left.ended.counts().values()) >= 80
    back, whole = recover(left, make), read_whole(left)
    assert dict(back.ledger.jobs) == dict(whole.ledger.jobs)
    assert back.ledger.jobs.counts() == whole.ledger.jobs.counts()
    assert [*back.ledger.jobs] == [f"j{i}" for i in range(100)]
    assert sum(left.ended.counts().values()) + len(back.ledger.jobs.live) == 100
    left.close()


class SlowDecider(InProcess):
    """Takes so long that jobs are cancelled before the decision that starts them is made."""

    async def plan(self, scheduler: Scheduler, policy: PartSpec, now: float) -> Plan:
        """What the policy says, later."""
        await asyncio.sleep(0.003)
        return await super().plan(scheduler, policy, now)


def test_a_job_that_starts_after_its_cancellation_is_recorded_as_the_log_tells_it(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start and its end come in one turn, of which the scheduler knows both at once."""
    monkeypatch.setattr(driver_module, "SOON_S", 0.001)
    live: dict[JobId, JobRecord] = {}

    async def life() -> None:
        async with opened(store, decider=SlowDecider()) as driver:
            await run_jobs(driver, 0, 40)
            await driver._shelf.finish()
            live.update(driver.ledger.jobs)

    asyncio.run(life())
    whole = read_whole(store)
    assert live == dict(whole.ledger.jobs)
    assert [job for job, record in live.items() if record.outcome == "cancelled" and record.starts]
    assert dict(recover(store, make).ledger.jobs) == live
    store.close()


def test_a_start_from_a_snapshot_writes_none_before_it_is_due(store: SqliteStore) -> None:
    """With many jobs that would take longer than the start itself."""

    async def life(count: int) -> tuple[int, int]:
        before = store.latest_snapshot()
        async with opened(store, every=30) as driver:
            await run_jobs(driver, 100 + store.last_seq(), count)
            await asyncio.gather(*filter(None, [driver.saver._task]))
            after = store.latest_snapshot()
        assert after is not None
        return 0 if before is None else before[0], after[0]

    first = asyncio.run(life(20))
    assert first[0] < first[1]
    few = asyncio.run(life(1))
    assert few[0] == few[1]
    many = asyncio.run(life(20))
    assert many[0] < many[1]
    store.close()


def test_a_log_without_a_snapshot_is_read_without_holding_all_its_jobs(store: SqliteStore) -> None:

    async def life() -> None:
        async with opened(store) as driver:
            await run_jobs(driver, 0, 100)

    asyncio.run(life())
    store.save(store.last_seq(), b"rust")
    back = recover(store, make)

    assert len(back.ledger.jobs) == 100
    assert len(back.ledger.jobs.live) < 20
    assert dict(back.ledger.jobs) == dict(read_whole(store).ledger.jobs)
    store.close()


def test_an_id_of_a_job_that_left_long_ago_is_not_given_again(store: SqliteStore) -> None:

    async def life() -> None:
        async with opened(store) as driver:
            await run_jobs(driver, 0, 40)
            await driver._shelf.finish()
            assert JobId("j0") not in driver.ledger.jobs.live
            with pytest.raises(Exception, match="there is a job 'j0' already"):
                await driver.submit(Job(JobId("j0")))
            assert driver.job(JobId("j0")).state == "succeeded"
            await driver.cancel(JobId("j0"))

    asyncio.run(life())
    store.close()


def test_a_disk_that_stays_full_while_the_log_is_read_again_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is ahead of the snapshot, so reading has something to write, too."""
    monkeypatch.setattr(log_failure, "AGAIN_S", 0.01)
    store, left = SqliteStore(tmp_path / "events.db"), {"appends": 1, "resets": 3}
    append, reset = store.append, store.ended.reset

    def full(what: str) -> None:
        if left[what]:
            left[what] -= 1
            raise StoreError("database or disk is full")

    def appended(events: Sequence[tuple[float, Event]]) -> int:
        full("appends")
        return append(events)

    def dropped(number: int, jobs: Collection[JobId]) -> None:
        full("resets")
        reset(number, jobs)

    async def life() -> list[JobId]:
        async with opened(store, 10_000) as driver:
            await run_jobs(driver, 0, 40)
            await driver._shelf.finish()
            monkeypatch.setattr(store, "append", appended)
            monkeypatch.setattr(store.ended, "reset", dropped)
            with pytest.raises(EngineError, match="cannot write its log"):
                await driver.submit(Job(JobId("refused")))
            async with asyncio.timeout(LIMIT_S):
                while driver._unwritten is not None:
                    await asyncio.sleep(0.01)
                await run_jobs(driver, 100, 3)
            return [*driver.ledger.jobs]

    known = asyncio.run(life())
    store.close()

    assert left == {"appends": 0, "resets": 0}
    assert known == [f"j{i}" for i in (*range(40), *range(100, 103))]
