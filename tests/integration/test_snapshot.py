"""Snapshots: the same as the log, checked when read, and no program."""

from __future__ import annotations

import ast
import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.waiting import LIMIT_S
from weft.app.serve.predicting import HintedOrAlike
from weft.core.events.event import Reported
from weft.core.events.report import Report
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import profile_of
from weft.perf.training.learner import Learner
from weft.policies.fifo import Fifo
from weft.runtime.loop.driver import Driver
from weft.runtime.recovery.recover import Recovered, freeze, recover, thaw_state
from weft.runtime.recovery.snapshot import DamagedSnapshot, thaw
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore


def knowledge() -> Knowledge:
    return Knowledge(HintedOrAlike(), FittedBeliefs(), Colocated(profile_of), Learner())


def make() -> Scheduler:
    return Scheduler(Fifo(), Cluster(()), knowledge=knowledge())


def frozen(back: Recovered) -> bytes:
    taken = freeze(back)
    return taken.whole([*taken.parts()])


@pytest.fixture(scope="module")
def story() -> MemoryStore:
    """A log of jobs that ended, run and wait, drained nodes, and many reports."""
    store, engine = MemoryStore(), SimulatedEngine("3x4:a100", speed=2000.0, perf=Replay())

    async def life() -> None:
        driver = Driver(engine, store, policy="fifo", knowledge=knowledge)
        await driver.open()
        for i in range(30):
            hints = {"duration_s": 50.0 + 40.0 * i if i < 9 else 1e9}
            demand = Demand(1 + i % 4, share=0.5 if i % 5 == 4 and i % 4 == 0 else 1.0)
            job = Job(JobId(f"j{i}"), demand=demand, tenant=f"t{i % 3}", hints=hints)
            await driver.submit(job)
            if i == 20:
                async with asyncio.timeout(LIMIT_S):
                    await driver.ended(JobId("j8"))  # after a drain endless ones may be before it
                await driver.drain(parse_cluster("3x4:a100").nodes[1].id)
        async with asyncio.timeout(LIMIT_S):  # a driver that broke tells of no more changes
            endless = [JobId(f"j{i}") for i in range(9, 30)]
            while not any(driver.job(job_name).state == "running" for job_name in endless):
                await driver._changed.wait()  # which of them it is depends on the drain
        for name, record in driver.ledger.jobs.items():
            if record.running is not None:
                for step in range(1, 9):
                    report = Report(
                        step_s=0.2 + 0.01 * step,
                        grad_s=0.1,
                        per_gpu=8.0 * (1 + step % 3),
                        replicas=1.0 + step % 2,
                        grad_sqr=1.0 / step,
                        grad_var=2.0,
                        steps=10.0 * step,
                        epoch=float(step // 2),
                        loss=3.0 / step,
                        pace=0.5 + 0.01 * step,
                        user={"accuracy": 0.1 * step},
                    )
                    driver._post(Reported(name, record.running, report))
        await driver.cancel(JobId("j29"))  # after all reports
        await driver.close()

    asyncio.run(life())
    return store


def without_snapshot(store: MemoryStore, until: int | None = None) -> MemoryStore:
    copy = MemoryStore()
    copy.append([(at, event) for _, at, event in store.since(0)[:until]])
    return copy


def test_a_snapshot_holds_all_that_the_log_leads_to(story: MemoryStore) -> None:
    whole = recover(without_snapshot(story), make)

    back = thaw_state(thaw(frozen(whole)), whole.seq, make())

    expected, other = freeze(whole), freeze(back)
    assert other.head == expected.head
    assert other.tables == expected.tables
    assert (back.seq, back.at, back.policy) == (whole.seq, whole.at, whole.policy)
    assert expected.head["knowledge"]["beliefs"]
    assert expected.head["knowledge"]["training"]["heard"]
    assert expected.head["knowledge"]["predictor"]["alike"]["rings"]


def test_from_any_snapshot_the_rest_of_the_log_leads_to_the_same(story: MemoryStore) -> None:
    whole = freeze(recover(without_snapshot(story), make))
    length = len(story.since(0))

    for until in range(1, length, max(length // 25, 1)):
        part = without_snapshot(story, until)
        part.save(until, frozen(recover(part, make)))
        part.append([(at, event) for _, at, event in story.since(until)])
        back = freeze(recover(part, make))
        assert back.head == whole.head
        assert back.tables == whole.tables


def test_what_was_learnt_answers_the_same_after_a_snapshot(story: MemoryStore) -> None:
    whole = recover(without_snapshot(story), make)
    back = thaw_state(thaw(frozen(whole)), whole.seq, make())

    for scheduler in (whole.scheduler, back.scheduler):
        assert scheduler.knowledge.predictor is not None

    def answers(scheduler: Scheduler) -> list[Any]:
        known, table = scheduler.knowledge, scheduler.state.table
        assert known.predictor and known.beliefs and known.colocation and known.training
        shapes = np.array([1.0, 1.0]), np.array([1.0, 2.0])
        return [
            known.predictor.remaining(table, whole.at).tolist(),
            known.beliefs.blind_goodputs(table, ["a100"], *shapes).tolist(),
            known.beliefs.most_run(table).tolist(),
            [known.colocation.pace(job) for job in table.jobs],
            [known.training.seconds_left(job) for job in table.jobs],
            [str(known.training.learned(job)) for job in table.jobs],
        ]

    assert str(answers(back.scheduler)) == str(answers(whole.scheduler))


def test_one_bit_that_is_not_as_it_was_is_noticed(story: MemoryStore) -> None:
    data = frozen(recover(without_snapshot(story), make))

    for at in range(0, len(data), max(len(data) // 60, 1)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(DamagedSnapshot):
            thaw(bytes(damaged))
    with pytest.raises(DamagedSnapshot):
        thaw(data[:-1])


def test_a_damaged_snapshot_is_passed_over_and_the_log_is_read(story: MemoryStore) -> None:
    store = without_snapshot(story)
    whole = recover(store, make)
    store.save(whole.seq, frozen(whole)[:-5] + b"rust!")

    assert recover(store, make).ledger.jobs == whole.ledger.jobs


class Bomb:
    """Pickled, a program."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


def test_a_snapshot_that_is_a_program_is_not_run(
    story: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = without_snapshot(story)
    store.save(3, pickle.dumps(Bomb()))

    recover(store, make)

    assert not Path("exploded").exists()


def test_nothing_that_keeps_or_reads_state_knows_pickle() -> None:
    folder = Path(weft.__file__).parent
    for path in [p for part in ("runtime", "store", "core") for p in (folder / part).rglob("*.py")]:
        names = {
            name.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import)
            for name in node.names
        }
        if path.name == "frames.py" or path.parent.name == "aside":
            continue  # what it packs goes to our own process, and nowhere else
        assert not names & {"pickle", "marshal", "shelve"}, path
