"""The asyncio driver: real processes on the local engine, passing time on the simulated one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.core.errors import (
    EngineError,
    InvalidConfig,
    MaybeWritten,
    Superseded,
    UnknownName,
    WeftError,
)
from weft.core.events.event import (
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    NodeDown,
    Started,
    Submitted,
)
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId, NodeId
from weft.core.model.launch import Launch
from weft.core.protocols import Engine, Store
from weft.core.spec.part_spec import PartSpec
from weft.engines.local import LocalEngine
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.run_terms import Processes
from weft.runtime.deciding.replay import decide_again
from weft.runtime.loop.driver import Driver
from weft.sim.engine import SimulatedEngine
from weft.store import lease
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore
from weft.wire.processes import start_time


@asynccontextmanager
async def driving(
    engine: Engine, store: Store, policy: str | None = "fifo"
) -> AsyncIterator[Driver]:
    driver = Driver(
        engine, store, policy=policy, knowledge=lambda: Knowledge(Hinted(), LinearBeliefs())
    )
    await driver.open()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield driver
    finally:
        await driver.close()


def local(state: Path) -> LocalEngine:
    return LocalEngine(state, slots=4, warm=False, cpu=True, name="here")


def shell(name: str, script: str, gpus: int = 1, **launch: float) -> Job:
    each = Processes.PER_GPU
    how = Launch(("sh", "-c", script), workdir="/", backoff_s=0.1, processes=each, **launch)  # type: ignore[arg-type]
    return Job(JobId(name), demand=Demand(gpus), tenant="t", launch=how)


def passing(name: str, seconds: float, gpus: int = 1, most: int = 0) -> Job:
    demand = Demand(gpus, gpus, most or gpus)
    return Job(JobId(name), demand=demand, hints={"duration_s": seconds})


async def until(driver: Driver, job: str, state: str) -> None:
    async for _ in driver.subscribe(0):
        if JobId(job) in driver.ledger.jobs and driver.job(JobId(job)).state == state:
            return


async def events_of(driver: Driver, seq: int) -> AsyncIterator[tuple[int, float, Event]]:
    async for rows in driver.subscribe(seq):
        for row in rows:
            yield row


def kinds(store: Store) -> list[type[Event]]:
    return [type(event) for _, _, event in store.since(0)]


# ---- real processes


def test_a_command_runs_and_its_story_is_in_the_log(tmp_path: Path) -> None:
    async def run() -> None:
        store = SqliteStore(tmp_path / "events.db")
        async with driving(local(tmp_path), store) as driver:
            flag = tmp_path / "go"
            script = f"echo hi $RANK/$WORLD_SIZE; until test -e {flag}; do sleep 0.02; done"
            job = await driver.submit(shell("hello", script, gpus=2))
            await until(driver, job, "running")
            flag.touch()
            status = await driver.ended(job)

            assert status.state == "succeeded"
            assert status.record.starts == 1
            assert status.record.gpu_s.at(driver.now) > 0.0
            assert driver.engine.logs(job, 1)[1].read_text() == "hi 1/2\n"
        names = [t.__name__ for t in kinds(store) if t not in (Decided, Submitted)]
        assert names == ["PolicyChanged", "NodeUp", "Started", "Finished"]
        store.close()

    asyncio.run(run())


def test_a_failing_job_is_tried_again_and_then_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        store = MemoryStore()
        async with driving(local(tmp_path), store) as driver:
            job = await driver.submit(shell("bad", "echo broken >&2; exit 7", retries=2))
            status = await driver.ended(job)

        assert status.state == "failed"
        assert "exit code 7" in status.record.reason
        assert "broken" in status.record.reason
        failures = [e for _, _, e in store.since(0) if isinstance(e, Failed)]
        assert [f.retry for f in failures] == [True, True, False]
        times = [at for _, at, e in store.since(0) if isinstance(e, (Failed, Started))]
        assert times[2] - times[1] >= 0.1  # the second attempt waited
        assert times[4] - times[3] >= 0.2  # the third one twice as long

    asyncio.run(run())


def test_a_cancelled_job_leaves_its_devices(tmp_path: Path) -> None:
    async def run() -> None:
        async with driving(local(tmp_path), MemoryStore()) as driver:
            job = await driver.submit(shell("long", "exec sleep 1000", gpus=4))
            await until(driver, job, "running")

            await driver.cancel(job)
            after = await driver.submit(shell("next", "true", gpus=4))

            assert (await driver.ended(job)).state == "cancelled"
            assert (await driver.ended(after)).state == "succeeded"
            await driver.cancel(job)
            assert driver.job(job).state == "cancelled"

    asyncio.run(run())


def test_two_jobs_that_ask_for_half_a_slot_share_it(tmp_path: Path) -> None:
    async def run() -> None:
        engine = LocalEngine(tmp_path, slots=1, warm=False, cpu=True)
        async with driving(engine, MemoryStore()) as driver:
            for name in ("a", "b"):
                job = shell(name, "exec sleep 1000")
                half = Job(job.id, demand=Demand(1, share=0.5), launch=job.launch)
                await driver.submit(half)

            await until(driver, "a", "running")
            await until(driver, "b", "running")

            assert driver.job(JobId("a")).state == driver.job(JobId("b")).state == "running"
            await driver.cancel(JobId("a"))
            await driver.cancel(JobId("b"))

    asyncio.run(run())


def test_running_jobs_are_adopted_when_the_driver_comes_back(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def first() -> None:
        store = SqliteStore(tmp_path / "events.db")
        async with driving(local(tmp_path), store) as driver:
            job = await driver.submit(shell("long", f"until test -e {flag}; do sleep 0.02; done"))
            await driver.submit(shell("queued", "true", gpus=4))
            await until(driver, job, "running")
        store.close()

    async def second() -> None:
        store = SqliteStore(tmp_path / "events.db")
        async with driving(local(tmp_path), store, policy=None) as driver:
            assert driver.job(JobId("long")).state == "running"
            flag.touch()

            status = await driver.ended(JobId("long"))

            assert status.state == "succeeded"
            assert (status.record.starts, status.record.attempt) == (1, 1)
            assert (await driver.ended(JobId("queued"))).state == "succeeded"
        store.close()

    asyncio.run(first())
    asyncio.run(second())


def test_a_killed_agent_takes_its_ranks_along_and_the_job_is_tried_again(tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/again && exit 0; touch {tmp_path}/again; exec sleep 1000"

    async def run() -> None:
        store = MemoryStore()
        async with driving(local(tmp_path), store) as driver:
            job = await driver.submit(shell("victim", script, gpus=1, retries=0))
            await until(driver, job, "running")
            while not (tmp_path / "again").exists():
                await asyncio.sleep(0.01)
            folder = tmp_path / "jobs" / "victim" / "1"
            agent, ranks = pids(folder)

            os.kill(agent, signal.SIGKILL)

            assert (await driver.ended(job)).state == "succeeded"
            assert driver.job(job).record.restarts == 1
            assert [rank for rank in ranks if start_time(rank) is not None] == []
        failed = next(e for _, _, e in store.since(0) if isinstance(e, Failed))
        assert failed.reason == "its agent died"
        assert (failed.retry, failed.lost) == (True, True)

    asyncio.run(run())


def test_a_killed_rank_ends_the_attempt_and_the_job_is_tried_again(tmp_path: Path) -> None:
    script = (
        f"test -e {tmp_path}/again$RANK && exit 0; touch {tmp_path}/again$RANK; exec sleep 1000"
    )

    async def run() -> None:
        async with driving(local(tmp_path), MemoryStore()) as driver:
            job = await driver.submit(shell("victim", script, gpus=2, retries=1))
            await until(driver, job, "running")
            while not all((tmp_path / f"again{rank}").exists() for rank in range(2)):
                await asyncio.sleep(0.01)

            os.kill(pids(tmp_path / "jobs" / "victim" / "1")[1][1], signal.SIGKILL)

            status = await driver.ended(job)
            assert (status.state, status.record.failures) == ("succeeded", 1)

    asyncio.run(run())


def pids(folder: Path) -> tuple[int, list[int]]:
    import json

    agent = json.loads((folder / "claim.json").read_text())["pid"]
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "started":
            return agent, [pid for pid, _ in event["ranks"].values()]
    raise AssertionError("not started")


def test_what_a_recorded_real_run_decided_is_decided_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "events.db")

    async def run() -> None:
        async with driving(local(tmp_path), store, policy="las:thresholds=0.3/1") as driver:
            for i in range(6):
                await driver.submit(shell(f"j{i}", f"sleep 0.{i + 1}", gpus=1 + i % 3))
            await driver.submit(shell("bad", "exit 1", retries=1))
            await driver.set_policy("srtf")
            await driver.cancel(JobId("j5"))
            await driver.drain(NodeId("here"))
            await driver.undrain(NodeId("here"))
            for job in [*driver.ledger.jobs]:
                await driver.ended(job)

    asyncio.run(run())

    turns = decide_again(store.since(0), knowledge=Knowledge(Hinted(), LinearBeliefs()))
    assert sum(turn.then is not None for turn in turns) > 10
    assert any(turn.then and turn.then.changes for turn in turns)
    assert [turn for turn in turns if turn.then != turn.now] == []
    store.close()


# ---- passing time


def simulated(speed: float = 2000.0, cluster: str = "2x4:a100") -> SimulatedEngine:
    return SimulatedEngine(cluster, speed=speed, perf=Replay())


def test_rounds_are_kept_in_real_time() -> None:
    async def run() -> None:
        engine = simulated()
        async with driving(engine, MemoryStore(), policy="optimus:interval=60") as driver:
            job = await driver.submit(passing("elastic", 3000.0, 1, most=4))

            status = await driver.ended(job)

            assert status.state == "succeeded"
            took = (status.record.ended or 0.0) - (status.record.started or 0.0)
            assert took < 2000.0  # it was grown

    asyncio.run(run())


def test_drained_nodes_stay_drained_over_a_restart() -> None:
    store, engine = MemoryStore(), simulated()

    async def first() -> None:
        async with driving(engine, store) as driver:
            job = await driver.submit(passing("moved", 1e6, 4))
            await until(driver, job, "running")
            where = driver.job(job).record.allocation
            assert where is not None

            await driver.drain(where.slices[0].node)
            await until(driver, job, "running")

            moved = driver.job(job).record.allocation
            assert moved is not None
            assert moved.slices[0].node != where.slices[0].node
            assert ("drained") in {word for _, word in driver.nodes()}

    async def second() -> None:
        async with driving(engine, store, policy=None) as driver:
            words = sorted(word for _, word in driver.nodes())
            assert words == ["drained", "up"]
            drained = next(node.id for node, word in driver.nodes() if word == "drained")
            await driver.undrain(drained)
            assert {word for _, word in driver.nodes()} == {"up"}

    asyncio.run(first())
    asyncio.run(second())
    assert [e.drained for _, _, e in store.since(0) if isinstance(e, NodeDown)] == [True]


def test_a_policy_that_asks_too_much_of_the_engine_is_refused(tmp_path: Path) -> None:
    class Rigid(SimulatedEngine):
        @property
        def supports(self):  # type: ignore[no-untyped-def]
            from weft.core.plan.about import Controls

            return Controls.SHARE

    async def run() -> None:
        async with driving(Rigid(perf=Replay()), MemoryStore()) as driver:
            with pytest.raises(
                InvalidConfig, match="'optimus' sets host, count, which this engine"
            ):
                await driver.set_policy("optimus")
            with pytest.raises(UnknownName, match="did you mean 'srtf'"):
                await driver.set_policy("strf")
            await driver.set_policy("las")

            assert driver.policy == PartSpec("las")

        with pytest.raises(InvalidConfig, match="cannot honour"):
            await Driver(
                Rigid(perf=Replay()),
                MemoryStore(),
                policy="optimus",
                knowledge=lambda: Knowledge(Hinted()),
            ).open()

    asyncio.run(run())


def test_jobs_that_can_never_run_are_refused_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with driving(local(tmp_path), MemoryStore()) as driver:
            with pytest.raises(InvalidConfig, match="asks for 9 CPU slots; there are 4"):
                await driver.submit(shell("big", "true", gpus=9))
            with pytest.raises(InvalidConfig, match="has no command"):
                await driver.submit(passing("nothing", 1.0))
            with pytest.raises(InvalidConfig, match="is not a folder here"):
                job = Job(JobId("lost"), launch=Launch(("true",), workdir="/no/such/place"))
                await driver.submit(job)
            await driver.submit(shell("same", "true"))
            with pytest.raises(InvalidConfig, match="there is a job 'same' already"):
                await driver.submit(shell("same", "true"))
            with pytest.raises(UnknownName, match="did you mean 'same'"):
                await driver.cancel(JobId("sme"))

    asyncio.run(run())


def test_subscribers_get_the_past_and_then_the_present() -> None:
    async def run() -> None:
        async with driving(simulated(), MemoryStore()) as driver:
            await driver.submit(passing("early", 10.0))
            seen: list[int] = []

            async def follow() -> None:
                async for seq, _, event in events_of(driver, 2):
                    seen.append(seq)
                    if isinstance(event, Cancelled):
                        return

            task = asyncio.create_task(follow())
            late = await driver.submit(passing("late", 1e9))
            await driver.cancel(late)
            await task

            assert seen == list(range(3, seen[-1] + 1))

    asyncio.run(run())


class FullDisk(MemoryStore):
    """Refuses everything while it is full."""

    full = False

    def append(self, events):  # type: ignore[no-untyped-def]
        if self.full:
            raise WeftError("no space left")
        return super().append(events)


def test_what_cannot_be_written_is_not_done_and_the_submitter_is_told() -> None:
    async def run() -> None:
        store = FullDisk()
        async with driving(simulated(), store) as driver:
            await driver.submit(passing("first", 1e9))
            store.full = True

            with pytest.raises(EngineError, match="no space left"):
                await driver.submit(passing("second", 1.0))
            with pytest.raises(EngineError, match="no space left"):
                await driver.submit(passing("third", 1.0))
            assert "no space left" in driver.trouble
            assert list(driver.ledger.jobs) == ["first"]

            store.full = False
            while "second" not in driver.ledger.jobs:  # the log is read again first
                with contextlib.suppress(EngineError):
                    await driver.submit(passing("second", 1.0))
                await asyncio.sleep(0.02)
            assert list(driver.ledger.jobs) == ["first", "second"]
            assert (await driver.ended(JobId("second"))).state == "succeeded"
            assert driver.trouble == ""

    asyncio.run(run())


class LostAnswer(MemoryStore):
    """Keeps everything, but one of its answers is lost."""

    left = -1

    def append(self, events):  # type: ignore[no-untyped-def]
        last = super().append(events)
        self.left -= 1
        if self.left == 0:
            raise MaybeWritten("the connection is lost")
        return last


@pytest.mark.parametrize("lost", range(1, 6))
def test_what_was_written_is_done_also_if_the_answer_of_the_log_is_lost(lost: int) -> None:
    async def run() -> None:
        store = LostAnswer()
        async with driving(simulated(), store) as driver:
            seen = list[int]()

            async def follow() -> None:
                async for seq, _, event in events_of(driver, 0):
                    seen.append(seq)
                    if isinstance(event, Finished) and event.job == "second":
                        return

            task = asyncio.create_task(follow())
            store.left = lost
            for name in ("first", "second"):
                while name not in driver.ledger.jobs:
                    with contextlib.suppress(EngineError):  # refused while the log is read again
                        await driver.submit(passing(name, 1.0))
                    await asyncio.sleep(0.02)
                assert (await driver.ended(JobId(name))).state == "succeeded"
            await task

            assert store.left < 0
            events = [event for _, _, event in store.since(0)]
            for kind in (Submitted, Started, Finished):
                jobs = [event.job for event in events if isinstance(event, kind)]
                assert [getattr(job, "id", job) for job in jobs] == ["first", "second"]
            assert seen == list(range(1, seen[-1] + 1))

    asyncio.run(run())


def test_jobs_are_counted_before_anything_else_happens() -> None:
    async def run() -> None:
        async with driving(simulated(), MemoryStore()) as driver:

            async def count() -> list[JobId]:
                return [*driver.incoming]

            both = driver.submit(passing("one", 1e6), passing("two", 1e6))
            _, counted = await asyncio.gather(both, count())

            assert counted == ["one", "two"]
            assert not driver.incoming

    asyncio.run(run())


def test_who_no_longer_waits_for_a_driver_does_not_end_it() -> None:
    async def run() -> None:
        async with driving(
            SimulatedEngine("1x4:a100", speed=3600.0, perf=Replay()), MemoryStore()
        ) as driver:
            waiting = asyncio.create_task(driver.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

            await driver.submit(passing("later", 60.0))

            assert (await driver.ended(JobId("later"))).state == "succeeded"

    asyncio.run(run())


def test_a_driver_whose_log_another_service_took_over_does_nothing_more(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "events.db"
        store = SqliteStore(path)
        driver = Driver(local(tmp_path), store, policy="fifo")
        await driver.open()
        last = store.last_seq()
        assert lease.take_from(path, lease.read(path))

        with pytest.raises(Superseded):
            await driver.submit(shell("late", "true"))
        with pytest.raises(Superseded):
            await driver.wait()

        await driver.close()
        assert store.last_seq() == last
        assert not (tmp_path / "jobs" / "late").exists()
        store.close()

    asyncio.run(run())


def test_a_policy_that_is_changed_as_the_log_gets_a_base_stays_changed() -> None:
    async def run() -> None:
        async with driving(simulated(), MemoryStore()) as driver:
            await asyncio.gather(driver.set_policy("srtf"), driver.restate_policy())

            assert driver.policy.name == "srtf"

    asyncio.run(run())
