"""Jobs that sleep go on where they sleep, whatever devices a plan names for them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from weft.core.asleep.rules import StopRules
from weft.core.events.actions import Action, Resume, Sleep, Start, Stop
from weft.core.events.event import Awoke, Finished, Slept, Started, Stopped, Submitted, Woken
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.core.stops import SLEEPS

CLUSTER = parse_cluster("1x2:h200")
NODE = CLUSTER.nodes[0].id


def on(gpu: int) -> Allocation:
    return Allocation((Slice(NodeId(NODE), (gpu,)),))


@dataclass(frozen=True)
class Told:
    """Gives jobs what `wants` says; whoever it does not name has nothing."""

    wants: dict[str, int]
    ties: Ties = Ties.NODES

    @property
    def about(self) -> About:
        return About("told", "for tests", ties=self.ties)

    def decide(self, view: View) -> Plan:
        here = {job.id for job in view.table.jobs}
        return Plan.target(
            view, {JobId(job): on(gpu) for job, gpu in self.wants.items() if job in here}
        )


class World:
    """A scheduler, and an engine that does at once what it is asked."""

    def __init__(self) -> None:
        rules = StopRules(frozenset(SLEEPS), memory=lambda *_: 10.0)
        self.policy = Told({})
        self.scheduler = Scheduler(self.policy, CLUSTER, stops=rules)
        self.now = 0.0

    def want(self, ties: Ties = Ties.NODES, **wants: int) -> list[Action]:
        self.scheduler.use(Told(wants, ties))
        self.scheduler.put_off(self.now)
        return self.wait(1.0)

    def wait(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self._do(self.scheduler.step(self.now, [Woken()]))

    def tell(self, event: Submitted | Finished) -> list[Action]:
        return self._do(self.scheduler.step(self.now, [event]))

    def _do(self, actions: list[Action]) -> list[Action]:
        done = []
        while actions:
            action = actions.pop(0)
            done.append(action)
            answer: Started | Stopped | Slept | Awoke
            if isinstance(action, Start):
                answer = Started(action.job.id, action.attempt)
            elif isinstance(action, Stop):
                answer = Stopped(action.job, action.attempt)
            elif isinstance(action, Sleep):
                answer = Slept(action.job, action.attempt, action.rung, 0.0)
            elif isinstance(action, Resume):
                answer = Awoke(action.job.id, action.attempt)
            else:
                continue
            actions += self.scheduler.step(self.now, [answer])
        return done

    def running(self) -> dict[str, int]:
        table = self.scheduler.state.table
        pairs = zip(table.jobs, table.allocations, strict=True)
        return {job.id: has.slices[0].gpus[0] for job, has in pairs if has is not None}


@pytest.fixture
def world() -> World:
    """a and b sleep on GPUs 0 and 1, while c and d run there."""
    world = World()
    for name in "abcd":
        world.tell(Submitted(Job(JobId(name), demand=Demand(1))))
    world.want(a=0, b=1)
    world.wait(10.0)
    world.want(c=0, d=1)
    assert world.running() == {"c": 0, "d": 1}
    return world


def test_two_sleepers_that_were_given_each_others_devices_exchange_them(world: World) -> None:
    world.want(a=1, b=0)

    assert world.running() == {"a": 0, "b": 1}


def test_where_devices_matter_a_sleeper_goes_on_at_home_if_nobody_else_is_there(
    world: World,
) -> None:
    world.want(Ties.NONE, a=1)

    assert world.running() == {"a": 0}


def test_a_sleeper_that_waits_for_its_devices_is_looked_at_again_in_time(world: World) -> None:
    world.want(Ties.NONE, c=0, a=1)
    assert world.running() == {"c": 0}
    wake_at = world.scheduler.state.wake_at
    assert wake_at is not None

    actions = world.wait(wake_at - world.now)

    assert world.running() == {"c": 0, "a": 1}
    assert any(isinstance(action, Start) for action in actions)
