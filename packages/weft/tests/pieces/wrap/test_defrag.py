"""Moves that let a gang start: found, priced, bounded, and never of a job that may not move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import weft
from weft.core.errors import InvalidConfig
from weft.core.events.event import Finished, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.scheduler import Scheduler
from weft.pieces.pack import backfill
from weft.pieces.place.gangs import consolidate
from weft.pieces.wrap.defrag import Defrag
from weft.testing.build import FixedPredictor


@dataclass(frozen=True)
class Together:
    """First come, first served, gangs only on as few nodes as possible."""

    about = About("together", "test", starves="overtaking")

    def decide(self, view: View) -> Plan:
        return backfill(view, np.arange(len(view.table)), consolidate)


def fragmented(rule: Defrag, left: float = 36_000.0, **more: object) -> Scheduler:
    """Two nodes of 4 with two devices idle on each: half a node each for jobs of 1 and 1."""
    known = FixedPredictor([left] * 7)
    scheduler = Scheduler(rule, parse_cluster("2x4:v100"), knowledge=Knowledge(known))
    jobs = [
        Job(JobId(name), demand=Demand(gpus), **(more if name in "abcd" else {}))  # type: ignore[arg-type]
        for name, gpus in (("a", 1), ("b", 1), ("x", 2), ("c", 1), ("d", 1), ("y", 2))
    ]
    scheduler.step(0.0, [Submitted(job) for job in jobs])
    scheduler.step(0.0, [Started(job.id, 1) for job in jobs])
    scheduler.step(1000.0, [Finished(JobId("x"), 1), Finished(JobId("y"), 1)])
    return scheduler


def decide(scheduler: Scheduler, gpus: int = 4, at: float = 2000.0) -> Plan:
    gang = Job(JobId("gang"), submitted=at, demand=Demand(gpus))
    _, due = scheduler.apply_events(at, [Submitted(gang)])
    assert due
    return scheduler.propose(at)


def test_a_gang_starts_at_once_and_every_move_has_its_price() -> None:
    scheduler = fragmented(Defrag(Together()))

    plan = decide(scheduler)

    gang = plan.changes[JobId("gang")]
    assert gang is not None
    assert len(gang.slices) == 1
    moved = sorted(job for job, on in plan.changes.items() if job != "gang")
    assert len(moved) == 2
    # 30 s of restart on 1 device; 4 devices saved 10 hours, half of it by each of the two.
    (first, *_) = (plan.reasons[job] for job in moved)
    assert first.startswith("moved from v100-")
    assert first.endswith("a gang of 4 GPUs could start: 0.01 GPU-hours lost, 20.00 gained")
    scheduler.adopt(2000.0, plan)
    assert "gang" in scheduler.view(2000.0).held()
    assert set(plan.blockers.values()) == {Blocker.MOVED}


def test_nobody_is_moved_where_the_wait_is_shorter_than_the_restarts() -> None:
    assert not decide(fragmented(Defrag(Together()), left=20.0)).changes


def test_a_job_that_may_not_be_preempted_is_never_moved() -> None:
    assert not decide(fragmented(Defrag(Together()), preemptible=False)).changes


def test_moves_are_bounded_and_young_jobs_are_left_alone() -> None:
    assert not decide(fragmented(Defrag(Together(), moves=1))).changes
    assert not decide(fragmented(Defrag(Together(), min_run_s=5000.0))).changes


def test_a_gang_that_could_start_anyway_moves_nobody() -> None:
    plan = decide(fragmented(Defrag(Together())), gpus=2)

    assert set(plan.changes) == {"gang"}


def test_defrag_refuses_parameters_that_mean_nothing() -> None:
    with pytest.raises(InvalidConfig, match="moves 0"):
        Defrag(Together(), moves=0)


def test_gangs_wait_less_and_nothing_is_lost_on_a_fragmenting_workload() -> None:
    rng = np.random.default_rng(1)
    pairs = tuple(
        (
            Job(JobId(f"j{i}"), 150.0 * i, Demand(int(rng.choice([1, 8], p=[0.9, 0.1])))),
            Truth(float(rng.lognormal(8.0, 1.0))),
        )
        for i in range(120)
    )
    trace = Trace("fragmenting", pairs)
    gangs = np.array([job.demand.gpus == 8 for job, _ in pairs])

    bare, moved = (
        weft.simulate(trace, policy, "4x8:v100", predictor="oracle").outcomes["together"][0]
        for policy in (Together(), Defrag(Together()))
    )

    waits = [
        (outcome.per_job.start_s - outcome.per_job.submit_s)[gangs].mean()
        for outcome in (bare, moved)
    ]
    assert waits[1] < 0.7 * waits[0]
    assert moved.metrics["fragmented_gpus"] < bare.metrics["fragmented_gpus"]
    assert moved.metrics["finished"] == len(pairs)


@pytest.mark.parametrize("nodes", [0, 1], ids=["on any nodes", "on one node"])
def test_several_gangs_start_one_soon_after_the_other(nodes: int) -> None:
    """Pairs of jobs fill nodes; one of each pair ends soon, so that all nodes are half empty."""
    short_and_long = [Truth(100.0), Truth(1e6)] * 4
    pairs = [(Job(JobId(f"j{i}"), 0.0, Demand(2)), truth) for i, truth in enumerate(short_and_long)]
    demand = Demand(4, nodes=nodes)
    pairs += [(Job(JobId(f"gang{i}"), 5000.0, demand), Truth(1e6)) for i in range(2)]

    rule = Defrag(Together(), min_run_s=0.0)
    result = weft.simulate(Trace("halves", tuple(pairs)), rule, "4x4:v100", predictor="oracle")

    jobs = result.outcomes["together"][0].per_job
    assert (jobs.start_s - jobs.submit_s)[-2:].max() < 60.0


def test_as_many_nodes_are_cleared_as_a_large_gang_needs() -> None:
    """Eight GPUs on nodes of four that are all half empty."""
    halves = [Truth(100.0), Truth(1e6)] * 4
    pairs = [(Job(JobId(f"j{i}"), 0.0, Demand(2)), truth) for i, truth in enumerate(halves)]
    pairs.append((Job(JobId("gang"), 5000.0, Demand(8)), Truth(1e6)))

    rule = Defrag(Together(), min_run_s=0.0)
    result = weft.simulate(Trace("halves", tuple(pairs)), rule, "4x4:v100", predictor="oracle")

    jobs = result.outcomes["together"][0].per_job
    assert jobs.start_s[-1] - jobs.submit_s[-1] < 60.0
