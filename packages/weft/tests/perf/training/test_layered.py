"""The truth of jobs with servers and of falling losses, and what is learnt of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.trace import Truth
from weft.formulas.training.convergence import Curve
from weft.formulas.training.tasks import tasks_of
from weft.perf.replay import Replay
from weft.perf.training.layered import (
    Layered,
    LayeredJob,
    Losing,
    network_of,
    place_together,
    speed,
)
from weft.perf.training.learner import Learner
from weft.testing import cluster_of
from weft.traces.options import DrawRequest
from weft.traces.synthetic.training import LOSSES, SERVERS

HINTS = {
    "server_cpus": 3.0,
    "worker_cpus": 2.0,
    "server_gbps": 1.0,
    "samples": 1280.0,
    "batch": 128.0,
    "most_servers": 8.0,
    "layer0_forward_s": 0.01,
    "layer0_backward_s": 0.5,
    "layer0_mb": 62.5,
}
JOB = Job(JobId("a"), demand=Demand(2, min=1, max=4), hints=HINTS)
ON = Allocation((Slice(NodeId("n0"), (0, 1), 10.0), Slice(NodeId("n1"), (0, 1), 10.0)))


def test_a_job_runs_at_the_exact_speed_of_its_layers() -> None:
    agent = Layered(Replay()).simulate_job(JOB, Truth(100.0))
    agent.begin(ON, "v100")

    pace = agent.pace(50.0, 60.0)

    # 32 samples on each of 4 workers; 2 of 4 workers share a server from afar: 0.5 s exposed.
    step = 32 * 0.01 + 0.5 + 2 * 0.5 * 2 / 4
    assert isinstance(agent, LayeredJob)
    assert pace.rate == pytest.approx(100.0 / 10 / step)
    assert pace.report is not None
    assert pace.report.values() == pytest.approx(
        {"workers": 4.0, "servers": 4.0, "updates_per_s": 1 / step, "steps": 5.0}
    )
    assert pace.seconds == 60.0


def test_a_job_with_servers_needs_layers() -> None:
    bare = {k: v for k, v in HINTS.items() if not k.startswith("layer")}

    with pytest.raises(InvalidConfig, match="no layers"):
        Layered(Replay()).simulate_job(Job(JobId("a"), hints=bare), Truth(100.0))


def test_a_loss_is_told_at_the_end_of_every_round() -> None:
    curve = Curve("sgd", (0.1, 1.0, 0.2), 50.0)
    agent = Layered(Replay()).simulate_job(
        Job(JobId("b"), demand=Demand(2)), Truth(100.0, curve=curve)
    )
    agent.begin(Allocation((Slice(NodeId("n0"), (0,)),)), "v100")

    first, later = agent.pace(0.0, 10.0), agent.pace(20.0, 10.0)

    assert isinstance(agent, Losing)
    assert first.seconds == 10.0
    assert first.report is not None and later.report is not None
    assert first.report.loss == pytest.approx(1.2)
    # Half of the GPUs asked for: an iteration of 2 s takes 4.
    assert later.report.iteration == 10.0
    assert later.report.iteration_s == pytest.approx(4.0)
    assert later.report.loss == pytest.approx(0.7)
    assert later.report.loss_change_most == pytest.approx(1.2 - 1.109091, abs=1e-6)


# ---- what is learnt


def test_trial_runs_predict_speeds_and_measurements_override_them() -> None:
    learner, tasks, network = Learner(cluster_of(16, node=2)), tasks_of(JOB), network_of(JOB)
    assert tasks is not None and network is not None

    before = learner.step_seconds(JOB, 4, 8)
    learner.observe(JOB, "v100", Report(workers=3.0, servers=2.0, updates_per_s=0.01, steps=4.0))
    after = learner.step_seconds(JOB, 4, 8)

    assert before is not None and after is not None
    for p, w in ((1, 1), (2, 2), (4, 4)):
        assert 1.0 / before[p, w] == pytest.approx(
            speed(network, tasks, place_together(w, p, 2)), rel=0.35
        )
    assert after[2, 3] == pytest.approx(100.0)
    assert learner.steps_left(JOB) == pytest.approx(6.0)


def test_steps_left_follow_the_loss_where_epochs_are_known() -> None:
    job = Job(JobId("c"), demand=Demand(2), hints={**HINTS, "epochs": 40.0})
    learner, curve = Learner(cluster_of(4)), Curve("sgd", (0.1, 1.0, 0.2), 40.0)
    base = Report(loss_change=0.1, loss_change_most=0.1, iteration_s=1.0, gpus=2.0)
    for k in range(10):
        learner.observe(job, "v100", replace(base, iteration=float(k), loss=float(curve.at(k))))

    left = learner.steps_left(job)

    # The normalised loss falls by less than 0.05 in ten epochs first at epoch 36.
    assert left is not None
    assert left == pytest.approx((36 - 10) * 10 / 40, abs=0.5)


def test_nothing_is_known_of_plain_jobs() -> None:
    learner, plain = Learner(cluster_of(4)), Job(JobId("p"))

    assert learner.ratios(plain) is None
    assert learner.step_seconds(plain, 2, 2) is None
    assert learner.steps_left(plain) is None
    assert learner.learned(plain) is None


# ---- drawn workloads


def test_drawn_jobs_are_sound_and_the_same_for_the_same_seed() -> None:
    first, again = (SERVERS.generate(DrawRequest(seed=5, jobs=50)) for _ in range(2))

    assert first.jobs == again.jobs
    for job, _ in first:
        tasks, network = tasks_of(job), network_of(job)
        assert tasks is not None and network is not None
        need = tasks.need(job.demand.gpus, tasks.servers)
        assert all(n <= cap + 1e-9 for n, cap in zip(need, tasks.caps, strict=True))
        assert job.hints["target_s"] > 0.0


def test_drawn_losses_spend_most_of_a_job_on_the_last_few_per_cent() -> None:
    trace = LOSSES.generate(DrawRequest(seed=5, jobs=80))

    parts = [t.curve.reached(0.9) / t.curve.iterations for _, t in trace if t.curve is not None]

    assert len(parts) == 80
    assert max(parts) < 0.5


def test_a_job_with_layers_and_no_servers_reduces_by_buckets() -> None:
    hints = {"layer0_mb": 125.0, "layer0_backward_s": 1.0, "layer0_forward_s": 0.01}
    hints |= {"batch": 100.0, "worker_gbps": 1.0, "node_gbps": 10.0}
    job = Job(JobId("d"), demand=Demand(2, min=1, max=4), hints=hints)
    agent = Layered(Replay()).simulate_job(job, Truth(100.0))

    agent.begin(Allocation((Slice(NodeId("n0"), (0,)), Slice(NodeId("n1"), (0,)))), "v100")
    asked = agent.pace(0.0, 60.0).rate
    agent.begin(Allocation((Slice(NodeId("n0"), (0, 1)),)), "v100")
    together = agent.pace(0.0, 60.0).rate

    # 0.5 s forward, 1 s backward, then 1 s over the network or a tenth inside a node.
    assert asked == pytest.approx(1.0)
    assert together == pytest.approx(2.5 / 1.6)


def test_a_job_with_layers_needs_a_batch_size() -> None:
    hints = {"layer0_mb": 125.0, "worker_gbps": 1.0}

    with pytest.raises(InvalidConfig, match="batch"):
        Layered(Replay()).simulate_job(Job(JobId("e"), hints=hints), Truth(100.0))
