"""Simulated jobs that change their devices as they train."""

from __future__ import annotations

import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Event, Resized
from weft.core.knowledge.costs import Costs
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.perf.replay import Replay
from weft.sim.driver import Simulation
from weft.sim.physics import Physics

RESTART, PREPARE, PAUSE, A_GB, GB = 30.0, 20.0, 0.5, 1.0, 2.0
COSTS = Costs(0.0, RESTART, True, PREPARE, PAUSE, A_GB, GB)


class Script:
    """Gives the one job what the script says from a time on."""

    about = About("script", "none", controls=Controls.COUNT)

    def __init__(self, *steps: tuple[float, tuple[int, ...]]) -> None:
        self._steps = steps

    def decide(self, view: View) -> Plan:
        if not len(view.table):
            return Plan()
        later = [at for at, _ in self._steps if at > view.now]
        gpus = [held for at, held in self._steps if at <= view.now][-1]
        node = view.cluster.nodes[0].id
        to = Allocation((Slice(node, gpus),))
        job = view.job(0).id
        changes = {} if view.holds(job) == to else {job: to}
        return Plan(changes, wake_at=min(later, default=None))


def simulate(
    *steps: tuple[float, tuple[int, ...]], live: bool = True
) -> tuple[Physics, list[tuple[float, Event]]]:
    cluster, log = parse_cluster("1x4:v100"), list[tuple[float, Event]]()
    trace = Trace("one", ((Job(JobId("j"), 0.0, Demand(1, min=1, max=4)), Truth(100.0)),))
    physics = Physics(trace, Replay(RESTART))
    policy, note = Script(*steps), lambda at, event: log.append((at, event))
    scheduler = Scheduler(policy, cluster, journal=note)
    Simulation(scheduler, physics, cluster, live=(lambda _: COSTS) if live else None).run()
    return physics, log


def resizes(log: list[tuple[float, Event]]) -> list[tuple[float, float]]:
    return [(at, event.pause_s) for at, event in log if isinstance(event, Resized)]


def test_a_job_that_grows_trains_on_until_its_new_processes_are_ready() -> None:
    physics, log = simulate((0.0, (0,)), (10.0, (0, 1)))

    assert resizes(log) == [(30.0, PAUSE + A_GB * GB)]
    assert physics.ended_at[0] == pytest.approx(30.0 + 2.5 + 70.0 / 2)
    assert physics.starts[0] == 1
    assert physics.resized[0] == 1


def test_a_job_that_only_gives_devices_up_pauses_at_once() -> None:
    physics, log = simulate((0.0, (0, 1)), (10.0, (0,)))

    assert resizes(log) == [(10.0, PAUSE)]
    assert physics.ended_at[0] == pytest.approx(10.0 + PAUSE + 80.0)


def test_both_sets_of_devices_are_paid_for_while_both_are_held() -> None:
    physics, _ = simulate((0.0, (0,)), (10.0, (1,)))

    assert physics.gpu_s[0] == pytest.approx(10.0 + 2 * PREPARE + (physics.ended_at[0] - 30.0))


def test_a_change_of_mind_before_the_switch_costs_no_second_pause() -> None:
    _, log = simulate((0.0, (0,)), (10.0, (0, 1, 2)), (20.0, (0, 1)))

    assert resizes(log) == [(30.0, 2.5)]  # what it needs was getting ready already


def test_a_job_that_ends_while_others_get_ready_just_ends() -> None:
    physics, log = simulate((0.0, (0,)), (90.0, (0, 1)))

    assert resizes(log) == []
    assert physics.ended_at[0] == 100.0


def test_without_the_mechanism_the_same_change_is_a_restart() -> None:
    physics, log = simulate((0.0, (0,)), (10.0, (0, 1)), live=False)

    assert resizes(log) == []
    assert physics.starts[0] == 2
    assert physics.ended_at[0] == pytest.approx(10.0 + RESTART + 45.0)


@pytest.mark.parametrize("text", ["alive", "restart:pause_s=1", "live:pause_s", "live:pause_s=-1"])
def test_terms_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--resize"):
        weft.simulate("philly", "fifo", jobs=2, resize=text)
