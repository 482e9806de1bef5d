"""Decisions at their pace: news is gathered while a policy pauses, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import groupby

from weft.core.about import About
from weft.core.actions import Wake
from weft.core.cluster import Cluster, Node
from weft.core.events import Decided, Event, Submitted, Woken
from weft.core.knowledge import Knowledge
from weft.core.model import Demand, Job, JobId, NodeId
from weft.core.plan import Plan
from weft.core.policy import Policy
from weft.core.scheduler import Scheduler
from weft.core.view import View
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.runtime.clock import Clock
from weft.runtime.decision import FAILED_S, LONGEST_S, PAUSE, Decisions
from weft.runtime.driver import Driver
from weft.runtime.replay import decide_again
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore

TAKES_S = 0.02


@dataclass(frozen=True, slots=True)
class Slow:
    """Thinks for a while, then leaves everything as it is; or fails while `broken` is not empty."""

    broken: list[str] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)

    about = About("slow", "of this test")

    def decide(self, view: View) -> Plan:
        self.asked.append(view.now)
        if self.broken:
            raise ValueError(self.broken[0])
        until = time.perf_counter() + TAKES_S
        while time.perf_counter() < until:
            pass
        return Plan()


class Bench:
    """A scheduler with its decisions, told of one event at a time."""

    def __init__(self, policy: Policy) -> None:
        self.noted: list[tuple[float, Event]] = []
        cluster = Cluster((Node(NodeId("n"), "a100", 8),))
        note = self.noted
        self.scheduler = Scheduler(policy, cluster, journal=lambda at, e: note.append((at, e)))
        self.clock = Clock()
        self.decisions = Decisions(self.clock)

    def tell(self, event: Event, at: float | None = None) -> list[object]:
        self.noted.clear()
        now = self.clock.now if at is None else at
        actions, due = self.scheduler.take_in(now, [event])
        if due:
            actions += self.decisions.make(self.scheduler, "slow", now, self.noted)
        return [*actions, *self.scheduler.asks()]


def submitted(name: str) -> Submitted:
    return Submitted(Job(JobId(name)))


def test_news_within_the_pause_of_a_slow_policy_is_decided_later_and_together() -> None:
    policy = Slow()
    bench = Bench(policy)
    bench.tell(submitted("a"))
    (first,) = policy.asked

    asks = [bench.tell(submitted(name)) for name in "bc"]

    wake = bench.scheduler.state.wake_at
    assert policy.asked == [first]
    assert wake is not None
    assert asks == [[Wake(wake)], []]
    assert first + PAUSE * TAKES_S < wake < bench.clock.now + LONGEST_S
    assert bench.tell(Woken(), at=wake) == [Wake(None)]
    assert policy.asked == [first, wake]


def test_who_asked_to_be_woken_is_woken_whatever_the_pace() -> None:
    policy = Slow()
    bench = Bench(policy)
    bench.tell(submitted("a"))
    bench.scheduler.put_off(bench.clock.now)

    bench.tell(Woken())

    assert len(policy.asked) == 2


def test_a_policy_that_fails_when_woken_changes_nothing_and_is_asked_again() -> None:
    broken = ["a bug"]
    policy = Slow(broken)
    bench = Bench(policy)
    bench.scheduler.put_off(bench.clock.now)

    bench.tell(Woken())

    wake = bench.scheduler.state.wake_at
    assert bench.decisions.trouble == "policy 'slow' failed: a bug"
    assert wake is not None
    assert abs(wake - bench.clock.now - FAILED_S) < 5.0
    broken.clear()
    bench.tell(Woken(), at=wake)
    assert bench.decisions.trouble == ""


def test_what_a_busy_service_put_off_is_decided_and_replays_the_same() -> None:
    store = MemoryStore()

    async def busy() -> None:
        engine = SimulatedEngine("2x4:a100", speed=1000.0, perf=Replay())
        driver = Driver(
            engine, store, policy="las", knowledge=lambda: Knowledge(Hinted(), LinearBeliefs())
        )
        await driver.open()
        for i in range(120):
            job = Job(JobId(f"j{i}"), demand=Demand(1 + i % 3), hints={"duration_s": 60.0})
            await driver.submit(job)
        async with asyncio.timeout(30.0):
            for i in range(120):
                await driver.ended(JobId(f"j{i}"))
        await driver.close()

    asyncio.run(busy())
    log = store.since(0)

    turns = [[type(row[2]) for row in rows] for _, rows in groupby(log, key=lambda row: row[1])]
    assert any(Submitted in turn and Decided not in turn for turn in turns)
    again = decide_again(log, knowledge=Knowledge(Hinted(), LinearBeliefs()))
    assert [turn for turn in again if turn.then != turn.now] == []
