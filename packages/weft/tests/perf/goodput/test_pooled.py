"""What jobs of one model tell together."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.reports import training_report

from weft.base.step_times import StepTime
from weft.core.events.event import Decided, Reported, Started, Submitted
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, BatchRange, Config, Demand, Job, JobId, NodeId, Slice
from weft.core.scheduler import Scheduler
from weft.core.state.table import JobTable
from weft.perf.goodput.pooled import PooledBeliefs
from weft.policies.fifo import Fifo

TRUTH = StepTime(0.02, 0.001, 0.01, 0.002, 0.03, 0.004, 1.5)
CONFIGS = [Config("h200", 1, n) for n in (1, 2, 4, 8)]


def job(name: str, model: str = "bert", tenant: str = "", user: str = "") -> Job:
    return Job(
        JobId(name),
        demand=Demand(1, 1, 8),
        model=model,
        tenant=tenant,
        user=user,
        batch=BatchRange(128, 128, 64),
    )


def report(replicas: int, progress: float = 0.0, factor: float = 1.0) -> Report:
    """What `weft_train` says of a job whose true step times are known."""
    step_s, grad_s = (factor * float(s) for s in (TRUTH.step(1, replicas, 64), TRUTH.grad(64)))
    return training_report(replicas, progress, step_s, grad_s, grad_var=20.0, work=100_000.0)


def table(*jobs: Job) -> JobTable:
    rows = JobTable()
    for seq, entry in enumerate(jobs):
        rows.add(entry, seq)
    return rows


def test_what_jobs_reported_is_saved_and_restored() -> None:
    beliefs, again = PooledBeliefs(), PooledBeliefs()
    for progress, replicas in ((0.1, 1), (0.4, 2), (0.8, 4)):
        on = Allocation((Slice(NodeId("n0"), tuple(range(replicas))),))
        attempt = AttemptSource(1, on, 0.0, 100.0 * progress, 100.0 * progress)
        beliefs.observe(job("first", user="ann"), "h200", report(replicas, progress), attempt)

    again.load(json.loads(json.dumps(beliefs.save())))

    rows = table(job("first", user="ann"), job("next"))
    assert again.save() == beliefs.save()
    assert again.pool.groups == beliefs.pool.groups
    assert np.array_equal(again.goodputs(rows, CONFIGS), beliefs.goodputs(rows, CONFIGS))
    assert np.array_equal(again.work_left(rows, 200.0), beliefs.work_left(rows, 200.0))


def test_a_job_is_known_before_its_first_report_by_others_of_its_model() -> None:
    beliefs = PooledBeliefs()
    beliefs.observe(job("first"), "h200", report(2))
    beliefs.forget(job("first"))

    goodputs = beliefs.goodputs(table(job("next"), job("other", model="vit")), CONFIGS)

    assert (goodputs[0, :3] > 0.0).all()
    assert goodputs[0, 3] == 0.0, "twice as many as any job of the model ran with, and no more"
    assert np.isnan(goodputs[1]).all()


def test_jobs_that_declare_no_model_are_on_their_own() -> None:
    beliefs = PooledBeliefs()
    beliefs.observe(job("a", model=""), "h200", report(2))

    goodputs = beliefs.goodputs(table(job("a", model=""), job("b", model="")), CONFIGS)

    assert (goodputs[0, :3] > 0.0).all()
    assert np.isnan(goodputs[1]).all()


def test_what_enough_jobs_of_a_tenant_told_comes_before_what_others_did() -> None:
    beliefs = PooledBeliefs()
    beliefs.observe(job("b0", tenant="b"), "h200", report(2))
    before = beliefs.goodputs(table(job("x", tenant="a")), CONFIGS)[0, 0]
    for i in range(3):
        beliefs.observe(job(f"a{i}", tenant="a"), "h200", report(2, factor=3.0))

    after = beliefs.goodputs(table(job("x", tenant="a")), CONFIGS)[0, 0]

    assert after < 0.5 * before


def scheduler() -> Scheduler:
    """One that knows three jobs, of which `a` runs since 0 and reported at 30 and at 130."""
    made = Scheduler(Fifo(), parse_cluster("1x8:h200"), knowledge=Knowledge(pooled=PooledBeliefs()))
    for name in ("a", "b"):
        made.apply_event(0.0, Submitted(job(name)))
    on = Allocation((Slice(made.state.cluster.nodes[0].id, (0, 1)),))
    made.apply_event(0.0, Decided(1, {JobId("a"): on}))
    made.apply_event(0.0, Started(JobId("a"), 1))
    made.apply_event(30.0, Reported(JobId("a"), 1, report(2)))
    made.apply_event(130.0, Reported(JobId("a"), 1, report(2, progress=0.1)))
    return made


def test_work_left_is_what_the_speed_and_the_progress_of_jobs_say_together() -> None:
    made = scheduler()
    pooled = made.knowledge.pooled
    assert pooled is not None

    goodput = pooled.goodputs(made.state.table, [Config("h200", 1, 2)])[:, 0]
    then, later = (pooled.work_left(made.state.table, now) / goodput for now in (130.0, 230.0))

    # A tenth in 100 s: 900 s to go for the one, 1,000 s for the other.
    assert then == pytest.approx([900.0, 1000.0], rel=0.05)
    assert later == pytest.approx([800.0, 1000.0], rel=0.05)


def test_what_was_learnt_survives_a_restart_of_the_scheduler() -> None:
    made = scheduler()
    pooled = made.knowledge.pooled
    assert pooled is not None

    again = PooledBeliefs()
    again.load(json.loads(json.dumps(pooled.save())))

    rows = made.state.table
    assert again.goodputs(rows, CONFIGS) == pytest.approx(pooled.goodputs(rows, CONFIGS))
    assert again.work_left(rows, 200.0) == pytest.approx(pooled.work_left(rows, 200.0))
    assert again.first_batch(rows.jobs[1], CONFIGS[1]) == pooled.first_batch(
        rows.jobs[1], CONFIGS[1]
    )
