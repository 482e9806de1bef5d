"""Whole simulations small enough to work out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from weft.core.errors import PlanError
from weft.core.events.event import Event, Failed, NodeDown, NodeUp, Started, Stopped
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import After, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.perf.replay import Replay
from weft.policies.fifo import Fifo
from weft.policies.srtf import Srtf
from weft.predict.oracle import Oracle
from weft.sim.driver import Simulation
from weft.sim.faults import Faults
from weft.sim.physics import Physics
from weft.stack.layers import EligibleJobs

RESTART = 10.0


def trace_of(*jobs: tuple[str, float, int, float], failures: tuple[float, ...] = ()) -> Trace:
    """Jobs as (name, submitted, GPUs, length); all with the same failures."""
    pairs = [
        (Job(JobId(name), at, Demand(gpus)), Truth(length, failures))
        for name, at, gpus, length in jobs
    ]
    return Trace("hand", tuple(pairs))


class Sim:
    """One run, with everything it left behind."""

    def __init__(
        self,
        trace: Trace,
        policy: Policy | None = None,
        cluster: str = "1x1:v100",
        *,
        checkpoint_s: float = 0.0,
        checkpoint_every: float = 30.0,
        faults: Faults | None = None,
        seed: int = 0,
    ) -> None:
        machines = parse_cluster(cluster)
        self.log: list[tuple[float, Event]] = []
        self.progress: list[tuple[int, int]] = []
        self.physics = Physics(
            trace, Replay(RESTART), checkpoint_s=checkpoint_s, checkpoint_every=checkpoint_every
        )
        scheduler = Scheduler(
            EligibleJobs(policy or Fifo()),
            machines,
            knowledge=Knowledge(Oracle(self.physics.remaining)),
            journal=lambda at, event: self.log.append((at, event)),
        )
        self.driver = Simulation(
            scheduler,
            self.physics,
            machines,
            faults=faults,
            seed=seed,
            progress=lambda done, of: self.progress.append((done, of)),
        )
        self.driver.run()

    @property
    def ends(self) -> list[float]:
        values: list[float] = self.physics.ended_at.tolist()
        return values

    def times(self, kind: type[Event]) -> list[float]:
        return [at for at, event in self.log if isinstance(event, kind)]


def test_jobs_run_one_after_the_other() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), ("b", 10.0, 1, 50.0)))

    assert sim.ends == [100.0, 150.0]
    assert sim.physics.first_start.tolist() == [0.0, 100.0]
    assert sim.physics.starts.tolist() == [1, 1]
    assert sim.physics.gpu_s.tolist() == [100.0, 50.0]
    assert sim.physics.ran_s.tolist() == [100.0, 50.0]


def test_a_preempted_job_pays_for_its_restart_and_nobody_else_does() -> None:
    sim = Sim(trace_of(("long", 0.0, 1, 100.0), ("short", 10.0, 1, 20.0)), Srtf())

    # short runs 10..30; long then restarts for 10 and has 90 left.
    assert sim.ends == [30.0 + RESTART + 90.0, 30.0]
    assert sim.physics.starts.tolist() == [2, 1]
    assert sim.physics.gpu_s.tolist() == [10.0 + RESTART + 90.0, 20.0]
    assert sim.driver.counts.preemptions == 1


def test_a_checkpoint_delays_who_comes_next() -> None:
    trace = trace_of(("long", 0.0, 1, 100.0), ("short", 10.0, 1, 20.0))

    sim = Sim(trace, Srtf(), checkpoint_s=5.0)

    assert sim.times(Stopped) == [15.0]
    assert sim.physics.first_start.tolist() == [0.0, 15.0]
    assert sim.ends == [35.0 + RESTART + 90.0, 35.0]
    assert sim.physics.gpu_s.tolist() == [10.0 + RESTART + 90.0, 20.0]


def test_a_checkpoint_does_not_delay_who_goes_elsewhere() -> None:
    trace = trace_of(("a", 0.0, 2, 100.0), ("b", 0.0, 1, 500.0), ("c", 10.0, 2, 20.0))

    sim = Sim(trace, Srtf(), cluster="1x4:v100", checkpoint_s=5.0)

    # c needs two of four and only b, on one, gives way; the free fourth is not enough.
    assert sim.times(Stopped) == [15.0]
    assert sim.ends[2] == 35.0


def test_a_gpu_that_falls_free_is_used_in_the_same_instant() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), ("b", 100.0, 1, 50.0)))

    assert sim.ends == [100.0, 150.0]
    assert sim.driver.counts.decisions == 3


def test_jobs_that_arrive_together_start_in_their_order() -> None:
    sim = Sim(trace_of(("a", 5.0, 1, 10.0), ("b", 5.0, 1, 10.0), ("c", 5.0, 1, 10.0)))

    assert sim.ends == [15.0, 25.0, 35.0]


def test_a_job_that_fails_is_retried_from_its_last_checkpoint() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), failures=(40.0,)), checkpoint_every=30.0)

    # It dies at 40 and keeps 30; the restart costs 10 and 70 are left.
    assert sim.times(Failed) == [40.0]
    assert sim.ends == [40.0 + RESTART + 70.0]
    assert sim.physics.lost_s.tolist() == [10.0]
    assert sim.physics.starts.tolist() == [2]


def test_several_failures_are_met_in_turn() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), failures=(40.0, 40.0, 65.0)), checkpoint_every=30.0)

    # 40 (keeps 30) -> 30 + 10 work, dies again (keeps 30) -> 35 work to 65 (keeps 60) -> 40.
    assert sim.times(Failed) == [40.0, 60.0, 105.0]
    assert sim.ends == [105.0 + RESTART + 40.0]


def test_a_failure_beyond_the_end_never_happens() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), failures=(100.0, 200.0)))

    assert sim.ends == [100.0]


def test_without_checkpoints_in_between_a_failure_loses_everything() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), failures=(40.0,)), checkpoint_every=1000.0)

    assert sim.ends == [40.0 + RESTART + 100.0]


def test_progress_that_is_saved_all_the_time_is_never_lost() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 100.0), failures=(40.0,)), checkpoint_every=0.0)

    assert sim.ends == [40.0 + RESTART + 60.0]


def test_a_job_on_a_node_that_comes_and_goes_ends_when_it_should() -> None:
    length, every = 9000.0, 300.0
    faults = Faults(node_mtbf_h=0.5, repair_h=0.25)

    sim = Sim(trace_of(("a", 0.0, 1, length)), checkpoint_every=every, faults=faults)

    turns = faults.outages(parse_cluster("1x1:v100"), 0)
    now, done, cost, starts = 0.0, 0.0, 0.0, 1
    for (down, _, _), (up, _, _) in zip(turns, turns, strict=False):
        if now + cost + length - done <= down:
            break
        done += max(down - now - cost, 0.0) // every * every
        now, cost, starts = up, RESTART, starts + 1
    assert starts > 2
    assert sim.ends[0] == pytest.approx(now + cost + length - done)
    assert sim.physics.starts.tolist() == [starts]
    assert sim.times(NodeUp) == sim.times(Started)[1:]


def test_outages_come_in_order_and_take_turns_on_a_node() -> None:
    outages = Faults(node_mtbf_h=1.0, repair_h=0.5).outages(parse_cluster("3x1:v100"), seed=3)
    drawn = [next(outages) for _ in range(60)]

    assert all(a[0] <= b[0] for a, b in pairwise(drawn))
    for node in {node.id for _, _, node in drawn}:
        ups = [up for _, up, which in drawn if which.id == node]
        assert ups == [i % 2 == 1 for i in range(len(ups))]


def test_another_node_takes_over_when_one_is_lost() -> None:
    cluster, faults = "2x1:v100", Faults(node_mtbf_h=1.0, repair_h=1000.0)
    first = {seed: next(faults.outages(parse_cluster(cluster), seed)) for seed in range(20)}
    seed, at = next((s, at) for s, (at, _, node) in first.items() if node.id == "v100-0")

    sim = Sim(trace_of(("a", 0.0, 1, at + 30.0)), cluster=cluster, faults=faults, seed=seed)

    assert sim.times(NodeDown)[0] == at
    assert sim.times(Started)[:2] == [0.0, at]
    assert sim.physics.runs[0].on.slices[0].node == "v100-0"
    assert sim.physics.runs[1].on.slices[0].node == "v100-1"


@dataclass(frozen=True)
class Sleeper:
    about = About("sleeper", "test")
    reject: bool = False

    def decide(self, view: View) -> Plan:
        if self.reject:
            return Plan(rejected={job.id: "no" for job in view.table.jobs})
        return Plan()


def test_a_policy_that_leaves_everybody_waiting_is_found_out() -> None:
    with pytest.raises(PlanError) as caught:
        Sim(trace_of(*((name, 0.0, 1, 5.0) for name in "abcd")), Sleeper())

    assert caught.value.what == (
        "policy 'sleeper' leaves 4 jobs waiting forever, first a, b, c: "
        "nothing runs and no event is to come"
    )


def test_rejected_jobs_leave_without_having_run() -> None:
    sim = Sim(trace_of(("a", 0.0, 1, 5.0), ("b", 9.0, 1, 5.0)), Sleeper(reject=True))

    assert sim.driver.counts.rejected == 2
    assert np.isnan(sim.physics.ended_at).all()


def test_progress_is_reported_up_to_the_end() -> None:
    sim = Sim(trace_of(*((f"j{i}", 0.0, 1, 1.0) for i in range(50))))

    assert sim.progress[-1] == (50, 50)
    assert sim.progress == sorted(sim.progress)


def test_an_empty_trace_ends_at_once() -> None:
    assert Sim(Trace("none", ())).ends == []


def test_a_job_starts_when_those_it_runs_after_have_ended() -> None:
    first, other = Job(JobId("a"), 0.0), Job(JobId("b"), 0.0)
    last = Job(JobId("c"), 0.0, after=After(ok=(first.id, other.id)))
    never = Job(JobId("d"), 0.0, after=After(not_ok=(first.id,)))
    lengths = [(first, 100.0), (other, 300.0), (last, 50.0), (never, 50.0)]
    trace = Trace("hand", tuple((job, Truth(length)) for job, length in lengths))

    sim = Sim(trace, cluster="1x4:v100")

    assert sim.ends[:3] == [100.0, 300.0, 350.0]
    assert sim.driver.counts.rejected == 1
