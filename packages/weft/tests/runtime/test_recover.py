"""A log, or a snapshot and the rest of the log, lead to the same scheduler."""

from __future__ import annotations

import asyncio
import json
import pickle
from unittest.mock import patch

import pytest

from weft.core.events.actions import Start, Stop
from weft.core.events.event import (
    Decided,
    Event,
    Failed,
    NodeDown,
    NodeUp,
    PriorityChanged,
    Resumed,
    Started,
    Stopped,
    Submitted,
    Suspended,
)
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.scheduler import Scheduler
from weft.perf.replay import Replay
from weft.policies.fifo import Fifo
from weft.predict.history import HistoryPredictor
from weft.runtime.loop.driver import Driver
from weft.runtime.recovery.recover import freeze, reconcile, recover, wishes_of
from weft.runtime.recovery.snapshot import fingerprint
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore

A, B, C = JobId("a"), JobId("b"), JobId("c")
N = Node(NodeId("n"), "cpu", 4, 4.0, 8.0)


def make() -> Scheduler:
    return Scheduler(Fifo(), Cluster(()), knowledge=Knowledge(HistoryPredictor()))


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(N.id, gpus),))


def stored(*events: Event) -> MemoryStore:
    store = MemoryStore()
    store.append([(float(at), event) for at, event in enumerate(events, start=1)])
    return store


STORY: tuple[Event, ...] = (
    NodeUp(N),
    Submitted(Job(A)),
    Submitted(Job(B)),
    Submitted(Job(C)),
    Decided(1, {A: on(0), B: on(1), C: on(2)}),
    Started(A, 1),
    Started(C, 1),
    Decided(2, {C: on(3)}),
)


def test_a_snapshot_and_the_rest_equal_the_whole() -> None:
    events = [(float(i), event) for i, event in enumerate(STORY, start=1)]
    whole, parts = MemoryStore(), MemoryStore()
    whole.append(events)
    parts.append(events[:5])
    half = recover(parts, make)
    frozen = freeze(half)
    parts.save(5, frozen.whole(list(frozen.parts())))
    parts.append(events[5:])

    replayed, other = recover(whole, make), recover(parts, make)

    assert wishes_of(replayed.scheduler.state) == wishes_of(other.scheduler.state)
    assert replayed.attempts() == other.attempts()
    assert replayed.ledger.jobs == other.ledger.jobs
    assert (replayed.seq, replayed.at) == (other.seq, other.at) == (8, 8.0)


def test_a_snapshot_is_of_its_moment_and_written_a_piece_at_a_time() -> None:
    back = recover(stored(*STORY), make)
    learnt = {"rows": [[n, "x" * 90] for n in range(5_000)], "by": {str(n): n for n in range(999)}}
    learnt |= {"few": {"a": {7: (1, None)}, "b": []}, "none": {}}
    with patch.object(Knowledge, "save", lambda _: learnt):
        frozen = freeze(back)
    before = json.loads(json.dumps(learnt))
    learnt["rows"].clear()  # type: ignore[attr-defined]
    learnt["few"]["b"].append(1)  # type: ignore[index]

    pieces = list(frozen.parts())

    head, _, _ = b"".join(pieces).partition(b"\n")
    assert json.loads(head)["knowledge"] == before
    assert json.loads(head) == json.loads(json.dumps(frozen.head)) | {"fingerprint": fingerprint()}
    assert max(map(len, pieces)) < len(head) / 5  # no turn of the loop writes all of it


def test_commands_to_jobs_come_back_from_a_log_and_from_a_snapshot() -> None:
    commands = (Suspended(A, "an admin"), PriorityChanged(B, 1.0), Suspended(C), Stopped(A, 1))
    store = stored(*STORY, *commands, Resumed(C))
    frozen = freeze(recover(store, make))
    store.save(13, frozen.whole(list(frozen.parts())))

    whole, parts = recover(_without_snapshot(store), make), recover(store, make)

    for recovered in (whole, parts):
        assert recovered.scheduler.state.table.suspended == {A}
        assert recovered.ledger.jobs[A].suspended == "an admin"
        assert recovered.ledger.jobs[C].suspended is None
        assert [job.priority for job in recovered.scheduler.state.table.jobs] == [0.0, 1.0, 0.0]
        assert recovered.ledger.jobs[B].job == recovered.scheduler.state.table.jobs[1]
    assert whole.ledger.jobs == parts.ledger.jobs
    assert wishes_of(whole.scheduler.state) == wishes_of(parts.scheduler.state)
    assert whole.ledger.entitlement.rates == parts.ledger.entitlement.rates


@pytest.mark.parametrize("data", [b"rubbish", pickle.dumps(("other version", 1, 2, 3, 4, 5))])
def test_a_snapshot_that_cannot_be_used_is_passed_over(data: bytes) -> None:
    store = stored(*STORY)
    store.save(3, data)

    assert recover(store, make).ledger.jobs.keys() == {A, B, C}


def test_what_was_not_answered_is_asked_again_and_what_is_gone_is_declared_so() -> None:
    back = recover(stored(*STORY), make)

    events, wishes = reconcile(back, [N], {(A, 1), (C, 1)})
    lost, asked = reconcile(back, [N], set())

    assert back.attempts() == {(A, 1), (B, 1), (C, 1), (C, 2)}
    assert events == []
    assert wishes == [Stop(C, 1), Start(Job(B), on(1), 1)]
    assert lost == [Failed(A, 1, "lost while the service was away", lost=True), Stopped(C, 1)]
    assert asked == [Start(Job(B), on(1), 1)]


def test_nodes_that_came_and_went_meanwhile_are_told() -> None:
    back = recover(stored(NodeUp(N), NodeUp(Node(NodeId("old"), "cpu", 1))), make)
    larger = Node(N.id, "cpu", 8)

    events, _ = reconcile(back, [larger, Node(NodeId("new"), "cpu", 1)], set())

    assert events == [
        NodeDown(NodeId("old")),
        NodeUp(larger),
        NodeUp(Node(NodeId("new"), "cpu", 1)),
    ]


def test_a_driver_that_writes_snapshots_comes_back_the_same() -> None:
    store, engine = MemoryStore(), SimulatedEngine("1x4:a100", speed=5000.0, perf=Replay())

    async def life(jobs: range) -> list[str]:
        driver = Driver(
            engine,
            store,
            policy="fifo",
            knowledge=lambda: Knowledge(HistoryPredictor()),
            snapshot_every=7,
        )
        await driver.open()
        for i in jobs:
            job = Job(JobId(f"j{i}"), demand=Demand(1 + i % 4), hints={"duration_s": 100.0 * i})
            await driver.submit(job)
        for i in jobs[: len(jobs) // 2]:
            await driver.ended(JobId(f"j{i}"))
        await driver.close()
        return [status.state for status in driver.jobs()]

    asyncio.run(life(range(1, 9)))
    states = asyncio.run(life(range(9, 17)))

    whole = recover(_without_snapshot(store), make)
    parts = recover(store, make)
    assert whole.ledger.jobs == parts.ledger.jobs
    assert states.count("succeeded") >= 8


def _without_snapshot(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    copy.append([(at, event) for _, at, event in store.since(0)])
    return copy
