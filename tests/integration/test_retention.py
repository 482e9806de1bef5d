"""What is kept of ended jobs: by age, number and size; and a log that is cut goes on the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.app.serve.live import Live, Settings
from weft.app.state.upkeep import check_state, find_prunable, prune
from weft.core.errors import InvalidConfig
from weft.core.events.event import Decided
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.protocols import Store
from weft.core.scheduler import Scheduler
from weft.perf.replay import Replay
from weft.policies.fifo import Fifo
from weft.predict.history import HistoryPredictor
from weft.runtime.deciding.replay import decide_again
from weft.runtime.loop.driver import Driver
from weft.runtime.recovery.recover import freeze, recover
from weft.runtime.recovery.retention import (
    DAY_S,
    FOR_EVER,
    LONGEST_S,
    Keep,
    Retention,
    choose_base,
    choose_jobs,
    is_base_due,
)
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore

NOW = 1000 * DAY_S
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "events.db"),
}


def ended(name: str, days_ago: float, tenant: str = "") -> tuple[float, JobId, str]:
    return NOW - days_ago * DAY_S, JobId(name), tenant


OLDEST = [ended("a", 30), ended("b", 20), ended("c", 3), ended("d", 1)]


def chosen(keep: Keep, sizes: dict[JobId, int] | None = None) -> list[JobId]:
    return choose_jobs(OLDEST, NOW, keep, sizes=sizes or {})


# ---- which


def test_jobs_that_ended_long_ago_go_first_to_last() -> None:
    assert chosen(Keep(10.0, 0, 0.0, 0)) == ["a", "b"]


def test_of_too_many_those_that_ended_first_go() -> None:
    assert chosen(Keep(0.0, 1, 0.0, 0)) == ["a", "b", "c"]


def test_of_too_large_ones_those_that_ended_first_go() -> None:
    sizes = {JobId(name): 10**9 for name in "abcd"}

    assert chosen(Keep(0.0, 0, 2.5, 0), sizes) == ["a", "b"]


def test_nobody_puts_out_the_jobs_of_others_by_submitting_many_or_large_ones() -> None:
    mine = [ended("mine-0", 9, "me"), ended("mine-1", 8, "me")]
    flood = [ended(f"f{i:03d}", 1.0 - i / 1000, "other") for i in range(500)]
    sizes = {job: 10**9 if tenant == "other" else 10**8 for _, job, tenant in mine + flood}

    by_number = choose_jobs(mine + flood, NOW, Keep(0.0, 100, 0.0, 0), sizes={})
    by_size = choose_jobs(mine + flood, NOW, Keep(0.0, 0, 50.0, 0), sizes=sizes)
    by_both = choose_jobs(mine + flood, NOW, Keep(8.5, 3, 50.0, 0), sizes=sizes)

    assert by_number == [f"f{i:03d}" for i in range(402)]
    assert by_size == [f"f{i:03d}" for i in range(451)]
    assert by_both == ["mine-0", *(f"f{i:03d}" for i in range(498))]


def test_nothing_goes_where_everything_is_kept() -> None:
    assert chosen(FOR_EVER) == []


@pytest.mark.parametrize("wrong", [{"days": -1.0}, {"jobs": -1}, {"gb": float("inf")}])
def test_what_cannot_be_kept_so_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="keep-"):
        Keep(**wrong)


def test_the_log_is_cut_at_the_newest_base_that_is_old_enough() -> None:
    bases = [(10, NOW - 30 * DAY_S), (20, NOW - 20 * DAY_S), (30, NOW - 1 * DAY_S)]

    assert choose_base(bases, 100, NOW, Keep(10.0, 0, 0.0, 0)) == 20
    assert choose_base(bases, 100, NOW, Keep(0.0, 0, 0.0, 70)) == 30
    assert choose_base(bases, 100, NOW, Keep(40.0, 0, 0.0, 95)) is None
    assert choose_base(bases, 100, NOW, FOR_EVER) is None


def test_a_base_that_costs_a_policy_its_memory_is_rarer() -> None:
    keep, bases = Keep(1.0, 0, 0.0, 0), [(5, NOW - DAY_S)]

    assert is_base_due(bases, 100, NOW, keep, memory=False)
    assert not is_base_due(bases, 100, NOW, keep, memory=True)
    assert is_base_due(bases, 100, NOW + LONGEST_S, keep, memory=True)
    assert not is_base_due(bases, 100, NOW, FOR_EVER, memory=False)


# ---- a service that forgets


def knowledge() -> Knowledge:
    return Knowledge(HistoryPredictor())


def make() -> Scheduler:
    return Scheduler(Fifo(), Cluster(()), knowledge=knowledge())


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    made = STORES[request.param](tmp_path)
    yield made
    made.close()


async def run_jobs(driver: Driver, names: list[str]) -> None:
    for i, name in enumerate(names):
        hints = {"duration_s": 20.0 + 7.0 * (i % 5)}
        job = Job(JobId(name), demand=Demand(1 + i % 3), tenant=f"t{i % 2}", hints=hints)
        await driver.submit(job)
    for name in names:
        await driver.ended(JobId(name))


def test_a_cut_log_leads_to_the_same_and_decides_the_same(store: Store) -> None:
    engine = SimulatedEngine("1x4:a100", speed=5000.0, perf=Replay())

    async def life() -> Driver:
        driver = Driver(engine, store, policy="las", knowledge=knowledge)
        await driver.open()
        await driver.submit(Job(JobId("long"), hints={"duration_s": 1e9}))
        await run_jobs(driver, [f"a{i}" for i in range(8)])
        retention = Retention(driver, Keep(0.0, 3, 0.0, 10))
        await retention.prune()
        await run_jobs(driver, [f"b{i}" for i in range(8)])
        await retention.prune()
        await driver.close()
        return driver

    driver = asyncio.run(life())

    base = store.latest_base()
    assert base is not None
    rows = store.since(0)
    assert rows[0][0] == base[0] + 1 > 1
    turns = decide_again(rows, knowledge=knowledge(), base=base[1])
    assert sum(isinstance(turn.then, Decided) for turn in turns) > 5
    assert [turn.now for turn in turns] == [turn.then for turn in turns]
    live = freeze(driver._known, active_only=True)
    store.save(
        store.last_seq(), b"rust"
    )  # no snapshot helps: from the base and the rest of the log
    again = freeze(recover(store, make), active_only=True)
    assert again.tables == live.tables
    assert {**again.head, "knowledge": 0} == {**live.head, "knowledge": 0}


def test_what_tenants_used_stays_when_their_jobs_are_forgotten(store: Store) -> None:
    engine = SimulatedEngine("1x4:a100", speed=5000.0, perf=Replay())

    async def life() -> tuple[Any, Any, int]:
        driver = Driver(engine, store, policy="fifo", knowledge=knowledge)
        await driver.open()
        await run_jobs(driver, [f"a{i}" for i in range(8)])
        before = driver.ledger.used(driver.now)
        forgotten = await Retention(driver, Keep(0.0, 1, 0.0, 0)).prune()
        after = driver.ledger.used(driver.now)
        await driver.close()
        return before, after, forgotten

    before, after, forgotten = asyncio.run(life())

    assert forgotten == 7
    assert after == before
    assert len(recover(store, make).ledger.jobs) == 1


def test_two_who_prune_at_once_forget_each_job_once(store: Store) -> None:
    engine = SimulatedEngine("1x4:a100", speed=20_000.0, perf=Replay())

    async def life() -> tuple[tuple[int, int], int, int]:
        driver = Driver(engine, store, policy="fifo", knowledge=knowledge)
        await driver.open()
        await run_jobs(driver, [f"a{i}" for i in range(130)])
        await driver._shelf.finish()
        retention = Retention(driver, Keep(0.0, 10, 0.0, 0))
        forgotten = await asyncio.gather(retention.prune(), retention.prune())
        jobs = driver.ledger.jobs
        await driver.close()
        return forgotten, len(jobs), len([*jobs])

    forgotten, counted, there = asyncio.run(life())

    assert sum(forgotten) == 120
    assert counted == there == 10
    assert len(recover(store, make).ledger.jobs) == 10


def test_ended_jobs_add_nothing_after_pruning(tmp_path: Path) -> None:
    """Round after round of jobs: what is kept in memory, in the log and in folders stays."""
    store = SqliteStore(tmp_path / "events.db")
    engine = SimulatedEngine("1x4:a100", speed=20_000.0, perf=Replay())
    seen: list[tuple[int, int, int, int]] = []

    async def life() -> None:
        driver = Driver(engine, store, policy="fifo", knowledge=knowledge)
        await driver.open()
        retention = Retention(driver, Keep(0.0, 5, 0.0, 40))
        for round_ in range(6):
            await run_jobs(driver, [f"r{round_}-{i}" for i in range(30)])
            await retention.prune()
            await retention.prune()
            frozen = freeze(driver._known)
            frozen = replace(frozen, head={**frozen.head, "shares": {}, "past": {}})  # by hours
            size = len(frozen.whole([*frozen.parts()]))
            kept = len(driver.ledger.jobs), len(engine._ended), len(store.since(0)), size
            seen.append(kept)
        await driver.close()

    asyncio.run(life())
    store.close()

    jobs, engine_knows, events, snapshot = (list(column) for column in zip(*seen, strict=True))
    assert set(jobs) == {5}
    assert max(engine_knows) <= 10
    assert max(events[2:]) <= 1.5 * min(events[2:])  # those of a round, not of all
    assert snapshot[-1] <= snapshot[2] + 3 * 30 * 64  # 64 bytes a job: its place in what is learnt


# ---- by hand


def test_pruning_by_hand_says_what_would_go_and_then_it_is_gone(tmp_path: Path) -> None:
    engine = "simulated:cluster=1x4:a100,speed=5000"

    async def life(names: list[str]) -> None:
        service = Live(Settings(engine=engine, state=tmp_path))
        await service.open()
        await run_jobs(service.driver, names)
        await service.close()

    asyncio.run(life([f"a{i}" for i in range(6)]))
    for i in range(6):
        folder = tmp_path / "jobs" / f"a{i}" / "1"
        folder.mkdir(parents=True)
        (folder / "rank-0.log").write_bytes(b"x" * 10_000)
    keep = Keep(0.0, 2, 0.0, 0)

    prunable = find_prunable(tmp_path, keep)
    assert len(list((tmp_path / "jobs").iterdir())) == 6
    done = prune(tmp_path, keep)

    assert prunable == done
    assert (len(done.jobs), done.kept) == (4, 2)
    assert done.bytes >= 40_000
    assert len(list((tmp_path / "jobs").iterdir())) == 2
    assert not [finding for finding in check_state(tmp_path) if finding.level == "error"]

    async def again() -> list[str]:
        service = Live(Settings(engine=engine, state=tmp_path, keep=keep))
        await service.open()
        await service.retention.prune()
        names = [*map(str, service.driver.ledger.jobs)]
        await service.close()
        return names

    assert len(asyncio.run(again())) == 2
