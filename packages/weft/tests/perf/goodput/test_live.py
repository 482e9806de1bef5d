"""Beliefs about real jobs: fitted from reports, by the same models as in the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.base.step_times import StepTime
from weft.core.events.report import Report
from weft.core.model.job import BatchRange, Config, Demand, Job, JobId
from weft.core.state.table import JobTable
from weft.perf.goodput.belief import row_of
from weft.perf.goodput.beliefs import FittedBeliefs

TRUTH = StepTime(0.02, 0.001, 0.01, 0.002, 0.03, 0.004, 1.5)
ADAPTIVE = Job(JobId("a"), demand=Demand(1, 1, 8), batch=BatchRange(64, 1024, 256))
FIXED = Job(JobId("f"), demand=Demand(1, 1, 8))
CONFIGS = [Config("h200", 1, n) for n in (1, 2, 4, 8)]


def table(*jobs: Job) -> JobTable:
    rows = JobTable()
    for seq, job in enumerate(jobs):
        rows.add(job, seq)
    return rows


def report(replicas: int, local: int, accumulate: int = 1) -> Report:
    """What `weft_train` says of a job whose true step times are known."""
    grad = float(TRUTH.grad(local))
    step = float(TRUTH.step(1, replicas, local)) + (accumulate - 1) * grad
    return Report(
        step_s=step,
        grad_s=grad,
        per_gpu=float(local),
        accumulate=float(accumulate),
        batch=float(local * replicas * accumulate),
        replicas=float(replicas),
        grad_sqr=1.0,
        grad_var=20.0,
    )


def test_a_report_is_a_step_without_accumulation() -> None:
    row = row_of(report(4, 32, accumulate=3))

    assert row is not None
    assert (row.nodes, row.replicas, row.local) == (1, 4, 32)
    assert row.step_s == pytest.approx(float(TRUTH.step(1, 4, 32)))


@pytest.mark.parametrize(
    "values", [Report(), Report(loss=1.0), Report(step_s=1.0, grad_s=0.0, per_gpu=8.0)]
)
def test_reports_without_step_times_are_passed_over(values: Report) -> None:
    beliefs = FittedBeliefs()

    beliefs.observe(ADAPTIVE, "h200", values)

    assert np.isnan(beliefs.goodputs(table(ADAPTIVE), CONFIGS)).all()


def test_nothing_is_said_of_sizes_beyond_twice_what_was_run() -> None:
    beliefs = FittedBeliefs()
    beliefs.observe(ADAPTIVE, "h200", report(2, 64))

    on_1, two, four, eight = beliefs.goodputs(table(ADAPTIVE), CONFIGS)[0]

    assert 0.0 < on_1 < two < four
    assert eight == 0.0
    assert beliefs.most_run(table(ADAPTIVE, FIXED)).tolist() == [2.0, 8.0]


def test_more_reports_bring_belief_to_the_truth() -> None:
    beliefs = FittedBeliefs()
    for replicas, local in ((1, 64), (1, 128), (2, 64), (4, 64), (4, 128)):
        beliefs.observe(FIXED, "h200", replace(report(replicas, local), batch=256.0))

    believed = beliefs.goodputs(table(FIXED), CONFIGS)[0]
    true = [256 / float(TRUTH.step(1, n, 256 / n)) for n in (1, 2, 4, 8)]

    assert believed / believed[0] == pytest.approx(np.array(true) / true[0], rel=0.15)


def test_noisy_gradients_make_large_batches_worth_while() -> None:
    quiet, noisy = FittedBeliefs(), FittedBeliefs()
    for beliefs, var in ((quiet, 0.01), (noisy, 1000.0)):
        for replicas, local in ((1, 64), (1, 128), (2, 64), (4, 64)):
            beliefs.observe(ADAPTIVE, "h200", replace(report(replicas, local), grad_var=var))

    gain = [b.goodputs(table(ADAPTIVE), CONFIGS)[0, 2] for b in (quiet, noisy)]

    assert gain[1] > 1.2 * gain[0]


def test_a_job_that_leaves_is_forgotten() -> None:
    beliefs = FittedBeliefs()
    beliefs.observe(ADAPTIVE, "h200", report(1, 64))

    beliefs.forget(ADAPTIVE)

    assert np.isnan(beliefs.goodputs(table(ADAPTIVE), CONFIGS)).all()
    assert np.isnan(
        beliefs.blind_goodputs(table(ADAPTIVE), ["h200"], np.ones(2), np.array([1.0, 2.0]))
    ).all()


def test_a_job_that_measures_no_gradient_noise_counts_by_its_throughput() -> None:
    beliefs = FittedBeliefs()
    for replicas in (1, 2):
        silent = replace(report(replicas, 64), grad_sqr=None, grad_var=None, batch=128.0)
        beliefs.observe(FIXED, "h200", silent)

    on_1, two, four, _ = beliefs.goodputs(table(FIXED), CONFIGS)[0]

    assert 0.0 < on_1 < two < four
    assert two == pytest.approx(128.0 / float(TRUTH.step(1, 2, 64)), rel=0.1)
