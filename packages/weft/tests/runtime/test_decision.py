"""Decisions at their pace: news is gathered while a policy pauses, and nothing is lost by it.

And what if a policy fails: a safe order decides, and after some failures for good.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pytest
from tests.waiting import LIMIT_S

from weft.core.events.actions import Start, Wake
from weft.core.events.event import Decided, Event, Finished, NodeUp, PolicyChanged, Submitted, Woken
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import Cluster, Node
from weft.core.model.job import Demand, Job, JobId, NodeId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.predict.hinted import Hinted
from weft.runtime.deciding.decider import is_overdue
from weft.runtime.deciding.decision import AGAIN_S, LONGEST_S, PAUSE, Decisions, PolicyVerdict
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.deciding.replay import decide_again
from weft.runtime.loop.clock import Clock
from weft.runtime.loop.driver import Driver
from weft.sim.engine import SimulatedEngine
from weft.store.memory import MemoryStore

TAKES_S = 0.02
SLOW = PartSpec("slow", wrappers=(PartSpec("no_preempt"),))
SAFE = PartSpec("fifo", {"backfill": True}, (PartSpec("no_preempt"),))


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
        self.clock = Clock(seconds=time.process_time)  # as fast on a busy machine
        self.decisions = Decisions(self.clock, policy=SLOW)
        self.verdict: PolicyVerdict | None = None

    def tell(self, event: Event, at: float | None = None) -> list[object]:
        self.noted.clear()
        now = self.clock.now if at is None else at
        actions, due = self.scheduler.apply_events(now, [event])
        if due and not self.decisions.put_off(self.scheduler, now, self.noted):
            self.verdict = asyncio.run(self.decisions.ask(self.scheduler, now))
            if self.verdict is not None:
                actions += self.decisions.adopt(self.scheduler, now, self.verdict)
        return [*actions, *self.scheduler.wake_request()]


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
    assert first + PAUSE * TAKES_S < wake <= bench.clock.now + LONGEST_S
    assert bench.tell(Woken(), at=wake) == [Wake(None)]
    assert policy.asked == [first, wake]


def test_who_asked_to_be_woken_is_woken_whatever_the_pace() -> None:
    policy = Slow()
    bench = Bench(policy)
    bench.tell(submitted("a"))
    bench.scheduler.put_off(bench.clock.now)

    bench.tell(Woken())

    assert len(policy.asked) == 2


def test_a_job_that_the_policy_fails_with_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench, culprit = Bench(Slow()), JobId("a")
    bench.tell(submitted("a"))
    why = {culprit: Reason(Blocker.SPARED, {"policy": "slow", "error": "OverflowError"})}

    for plan in (Plan(), Plan().explained(why), Plan().explained(why)):
        bench.decisions.adopt(bench.scheduler, bench.clock.now, PolicyVerdict(plan))

    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.endswith("job=a left out: policy 'slow' fails with it (OverflowError)")


def test_a_safe_order_decides_where_the_policy_fails_until_it_works_again() -> None:
    broken = ["a bug"]
    policy = Slow(broken)
    bench = Bench(policy)

    actions = bench.tell(submitted("a"))

    decided = bench.noted[-1][1]
    assert isinstance(decided, Decided)
    assert decided.by == SAFE
    assert [type(action) for action in actions] == [Start, Wake]
    assert bench.decisions.trouble == "policy 'slow' failed: ValueError: a bug"
    again = bench.scheduler.state.wake_at
    assert again is not None
    assert again - bench.clock.now < AGAIN_S[0] + 1.0
    bench.tell(submitted("b"), at=again - 1.0)
    assert len(policy.asked) == 1  # it is left alone for a while, and others go on
    broken.clear()
    bench.tell(Woken(), at=again)
    assert len(policy.asked) == 2
    assert bench.decisions.trouble == ""
    assert bench.decisions.failures == 1


def test_a_policy_that_fails_again_and_again_is_given_up_until_a_person_chooses() -> None:
    bench = Bench(Slow(["a bug"]))
    bench.tell(submitted("a"))
    for _ in AGAIN_S:
        assert bench.verdict is not None
        assert bench.verdict.given_up is None
        bench.tell(Woken(), at=bench.scheduler.state.wake_at)

    assert bench.verdict is not None
    given_up = bench.verdict.given_up

    assert given_up == PolicyChanged(SAFE, SLOW, "ValueError: a bug")
    bench.decisions.change(given_up)
    assert "'slow' failed too often" in bench.decisions.given_up
    bench.decisions.change(PolicyChanged(SLOW))
    assert bench.decisions.given_up == ""


def test_what_a_busy_service_put_off_is_decided_and_replays_the_same() -> None:
    store = MemoryStore()

    async def busy() -> None:
        engine = SimulatedEngine("2x4:a100", speed=1000.0, perf=Replay())
        known = lambda: Knowledge(Hinted(), LinearBeliefs())  # noqa: E731 - a new one each time
        driver = Driver(engine, store, policy="las", knowledge=known)
        await driver.open()
        jobs = [
            Job(JobId(f"j{i}"), demand=Demand(1 + i % 3), hints={"duration_s": 60.0})
            for i in range(120)
        ]
        await asyncio.gather(*(driver.submit(job) for job in jobs))
        async with asyncio.timeout(LIMIT_S):
            for i in range(120):
                await driver.ended(JobId(f"j{i}"))
        await driver.close()

    asyncio.run(busy())
    log = store.since(0)

    kinds = [type(event) for _, _, event in log]
    assert kinds.count(Decided) < kinds.count(Submitted) + kinds.count(Finished)
    again = decide_again(log, knowledge=Knowledge(Hinted(), LinearBeliefs()))
    assert [turn for turn in again if turn.then != turn.now] == []


def test_a_service_that_comes_back_late_for_a_round_replays_the_same() -> None:
    """It is woken for when it began again, and only then for the round it had missed."""
    policy = PartSpec("optimus", {"interval": 0.25})
    node = Node(NodeId("n"), "a100", 8)
    before: list[tuple[float, Event]] = [
        (10.04, PolicyChanged(policy)),
        (10.05, NodeUp(node)),
        (10.06, submitted("a")),
    ]
    after: list[tuple[float, Event]] = []
    back = Scheduler(
        live_policy(policy),
        Cluster(()),
        knowledge=Knowledge(Hinted(), LinearBeliefs()),
        journal=lambda at, event: after.append((at, event)),
    )
    for at, event in before:
        back.apply_event(at, event)
    back.put_off(10.24)
    for at in (10.43, 10.44):
        back.step(at, [Woken()])
    log = [(seq, at, event) for seq, (at, event) in enumerate([*before, *after])]

    again = decide_again(log, knowledge=Knowledge(Hinted(), LinearBeliefs()))

    assert sum(turn.then is not None for turn in again) == 1
    assert [turn for turn in again if turn.then != turn.now] == []


@pytest.mark.parametrize(
    ("used_s", "took_s", "overdue"),
    [
        (19.0, 20.0, False),  # about to be done
        (5.0, 60.0, True),  # it hardly computes: it hangs
        (8.0, 60.0, False),  # many compute beside it
        (20.0, 90.0, True),
        (0.0, 20.0, True),
    ],
)
def test_a_busy_machine_does_not_make_a_policy_late(
    used_s: float, took_s: float, overdue: bool
) -> None:
    assert is_overdue(used_s, took_s, limit_s=20.0) is overdue
