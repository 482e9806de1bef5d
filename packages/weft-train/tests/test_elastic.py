from __future__ import annotations

import math

import pytest

from weft_train.batch.noise import GradientNoise, Norms
from weft_train.batch.tuner import BatchTuner, Bounds, find_rule
from weft_train.data.sampling import StepBatch
from weft_train.errors import TrainError


def noisy(scale: float, init: float = 32.0) -> GradientNoise:
    """Statistics with a known noise scale: |G|² is 1."""
    noise = GradientNoise(init)
    for _ in range(8):
        noise.observe(Norms(1.0 + scale / 8, 8, 1.0 + scale / 64, 64))
    return noise


def test_rules_scale_the_learning_rate() -> None:
    noise = noisy(320.0)

    assert find_rule("linear")(noise, 128) == 4.0
    assert find_rule("sqrt")(noise, 128) == 2.0
    assert find_rule("none")(noise, 128) == 1.0
    # var = 10, sqr = 1: (10 + 1) / (10 / 4 + 1)
    assert math.isclose(find_rule("adascale")(noise, 128), 11 / 3.5)


def test_an_unknown_rule_is_answered_with_the_known() -> None:
    with pytest.raises(TrainError, match="adascale, sqrt, linear, none"):
        find_rule("adamscale")


@pytest.mark.parametrize(
    ("given", "what"),
    [((0, None, None), "batch_size is 0"), ((64, 32, None), "below batch_size 64"),
     ((64, None, 0), "max_per_gpu is 0")],
)  # fmt: skip
def test_bad_bounds_are_named(given: tuple[int, int | None, int | None], what: str) -> None:
    with pytest.raises(TrainError, match=what):
        Bounds.of(*given)


def tuner(ranks: int, largest: int = 1024) -> BatchTuner:
    return BatchTuner(Bounds.of(32, largest, 256), "cpu", nodes=1, ranks=ranks)


def test_a_noisy_job_whose_steps_cost_much_overhead_takes_a_larger_batch() -> None:
    job = tuner(ranks=2)
    job.observe(16, grad_s=0.010, step_s=0.030)
    job.observe(32, grad_s=0.011, step_s=0.031)

    chosen = job.find_best(noisy(5000.0), job.choose_first())

    assert job.choose_first() == StepBatch(32, 16)
    assert 64 <= chosen.total <= 1024
    assert chosen.per_gpu <= 64, "no more than twice what ran before"


def test_a_job_without_noise_keeps_its_batch() -> None:
    job = tuner(ranks=2)
    job.observe(16, grad_s=0.010, step_s=0.011)
    job.observe(32, grad_s=0.020, step_s=0.021)

    assert job.find_best(noisy(1.0), job.choose_first()) == job.choose_first()


def test_a_fixed_batch_stays_whatever_the_scheduler_says() -> None:
    job = tuner(ranks=3, largest=32)

    assert job.fit_choice(per_gpu=100, accumulate=4) == StepBatch(32, 11)
    assert job.fit_total(512) == StepBatch(32, 11)


def test_the_schedulers_batch_is_cut_to_the_bounds() -> None:
    job = tuner(ranks=2)

    assert job.fit_choice(per_gpu=16, accumulate=2) == StepBatch(64, 16, 2)
    assert job.fit_choice(per_gpu=9999, accumulate=10) == StepBatch(1024, 256, 2)


def test_profiles_survive() -> None:
    job, again = tuner(ranks=2), tuner(ranks=4)
    job.observe(16, 0.01, 0.03)
    again.load_state_dict(job.state_dict())

    assert again.measured == job.measured
