"""Losses that real jobs report, as policies see them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from weft.core.events.report import Report
from weft.core.model.job import Demand, Job, JobId
from weft.perf.training.learner import Learner
from weft_papers.slaq.policy import reduction

JOB = Job(JobId("a"), demand=Demand(2, 1, 4))


def report(step: int, loss: float, *, epoch: int = 0, replicas: int = 1) -> Report:
    return Report(
        steps=float(step),
        loss=loss,
        epoch=float(epoch),
        step_s=0.1,
        grad_s=0.08,
        per_gpu=32.0,
        accumulate=1.0,
        batch=32.0 * replicas,
    )


def trained(scatter: float, floor: float = 0.2, height: float = 5.0) -> Learner:
    chance = np.random.default_rng(3)
    training = Learner()
    for step in range(10, 610, 10):
        loss = floor + height / (1.0 + 0.02 * step) + scatter * chance.standard_normal()
        training.observe(JOB, "cpu", report(step, loss, replicas=2))
    return training


@pytest.mark.parametrize("scatter", [0.0, 0.05])
def test_the_law_of_a_reported_loss_predicts_it(scatter: float) -> None:
    learned = trained(scatter).learned(JOB)

    assert learned is not None
    assert learned.law is not None
    assert learned.iteration == 600.0
    assert learned.gpu_s == pytest.approx(0.2)
    falls = float(learned.law(600.0) - learned.law(800.0))
    truly = 5.0 / 13.0 - 5.0 / 17.0
    assert falls == pytest.approx(truly, rel=0.6, abs=0.02)


def test_a_loss_that_falls_is_worth_more_than_one_that_only_scatters() -> None:
    falling, flat = trained(0.02).learned(JOB), trained(0.02, 5.0, 0.0).learned(JOB)

    assert falling is not None
    assert flat is not None
    gains = [reduction(losses, 4, 3.0) for losses in (falling, flat)]
    assert gains[0] is not None
    assert gains[1] is not None
    assert gains[0][2] > 2.0 * gains[1][2]


def test_a_job_that_restarts_from_an_older_checkpoint_is_not_told_twice() -> None:
    training = trained(0.0)
    before = training.learned(JOB)

    training.observe(JOB, "cpu", report(550, 100.0))

    assert training.learned(JOB) == before


def test_epochs_left_come_from_the_losses_of_epochs_and_seconds_from_their_steps() -> None:
    training = Learner()
    for step in range(0, 1001, 10):
        epoch = step // 100
        loss = 0.1 + 1.0 / (0.5 * step / 100 + 1.0)
        training.observe(JOB, "cpu", report(step, loss, epoch=epoch, replicas=1))

    left = training.seconds_left(JOB)

    assert left is not None
    # An epoch is 100 steps of 0.1 s on one GPU, and the job asked for two.
    assert left % 5.0 == pytest.approx(0.0, abs=1e-6)
    assert 5.0 <= left <= 150.0


def test_nothing_is_said_of_jobs_that_report_no_losses() -> None:
    training = Learner()
    training.observe(JOB, "cpu", Report(step_s=0.1, steps=3.0))
    training.observe(JOB, "cpu", report(5, float("nan")))

    assert training.learned(JOB) is None
    assert training.seconds_left(JOB) is None


def test_it_survives_a_snapshot_and_forgets_who_left() -> None:
    training = pickle.loads(pickle.dumps(trained(0.0)))
    assert training.learned(JOB) is not None

    training.forget(JOB)

    assert training.learned(JOB) is None
