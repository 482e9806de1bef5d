from __future__ import annotations

import math
import time

import pytest
import torch

from weft_train.batch.gradients import Gradients
from weft_train.batch.noise import GradientNoise, Norms
from weft_train.turns.stopwatch import CpuDeviceClock


def test_noise_of_known_gradients_is_found() -> None:
    # One sample's gradient is (3, 4) plus independent noise of variance 50 in both directions.
    chance = torch.Generator().manual_seed(1)
    noise = GradientNoise(init_batch=8, smooth=0.999)
    for _ in range(4000):
        grads = torch.tensor([3.0, 4.0]) + math.sqrt(50) * torch.randn(32, 2, generator=chance)
        parts = grads.view(4, 8, 2).mean(dim=1)
        few = float(parts.square().sum(dim=1).mean())
        noise.observe(Norms(few, 8, float(parts.mean(dim=0).square().sum()), 32))

    assert noise.sqr == pytest.approx(25.0, rel=0.1)
    assert noise.var == pytest.approx(100.0 / 8, rel=0.1)
    assert noise.scale == pytest.approx(4.0, rel=0.15)


def test_gain_is_one_at_the_initial_batch_and_never_more_than_the_scale() -> None:
    noise = GradientNoise(init_batch=10)
    for _ in range(8):
        noise.observe(Norms(5.0, 10, 2.0, 40))

    assert noise.known
    assert noise.gain(10) == pytest.approx(1.0)
    assert 1.0 < noise.gain(20) < 2.0
    assert noise.gain(20) < noise.gain(80) < 8.0


def test_what_is_not_a_number_is_left_out() -> None:
    noise = GradientNoise(init_batch=10)
    noise.observe(Norms(math.nan, 10, 1.0, 20))
    noise.observe(Norms(1.0, 10, math.inf, 20))
    noise.observe(Norms(1.0, 10, 1.0, 10))

    assert not noise.known
    assert noise.gain(100) == 1.0


def test_its_state_survives() -> None:
    noise, again = GradientNoise(4), GradientNoise(4)
    for n in range(9):
        noise.observe(Norms(4.0 + n, 4, 2.0, 8))
    again.load_state_dict(noise.state_dict())

    assert again == noise


def test_what_the_first_steps_showed_is_soon_forgotten() -> None:
    noise = GradientNoise(8)
    noise.observe(Norms(1e4, 8, 1e4, 16))
    for _ in range(40):
        noise.observe(Norms(2.0, 8, 1.5, 16))  # |G|² 1, one sample's variance 8

    assert noise.sqr == pytest.approx(1.0 + 1e4 * 2 / (41 * 42), rel=0.01)
    assert noise.var == pytest.approx(1.0, rel=0.01)


def measured(gradients: list[torch.Tensor], batch: int) -> list[Norms]:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=1, clock=CpuDeviceClock())
    taken = []
    for step, gradient in enumerate(gradients):
        watched.begin_step(step)
        weight.grad = gradient
        watched.after_last(batch, float(batch))
        if (norms := watched.take_norms()) is not None:
            taken.append(norms)
    return taken


def test_one_gpu_compares_two_steps_in_a_row() -> None:
    norms = measured([torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])], batch=8)

    assert norms == [Norms(12.5, 8.0, 6.25, 16.0)]


def test_one_gpu_with_accumulation_compares_the_first_part_with_the_whole() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=1, clock=CpuDeviceClock())
    watched.begin_step(0)
    weight.grad = torch.tensor([1.0, 0.0])  # half of the first micro-batch's gradient
    watched.after_first(scale=0.5)
    weight.grad = torch.tensor([0.0, 2.0])

    watched.after_last(16, 8.0)

    assert watched.take_norms() == Norms(4.0, 8.0, 4.0, 16.0)
    assert watched.take_norms() is None


def test_norms_that_come_late_are_read_before_the_next_are_measured() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=1, clock=CpuDeviceClock(), late=True)
    watched.every = 4  # more often than a norm takes to come
    taken = []
    for step in range(48):
        watched.begin_step(step)
        weight.grad = torch.ones(2)
        watched.after_last(8, 8.0)
        if watched.take_norms() is not None:
            taken.append(step)

    assert taken == [9, 21, 33, 45]


def test_measuring_is_thinned_out_when_steps_are_short() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=1, clock=CpuDeviceClock())
    watched.begin_step(0)
    weight.grad = torch.ones(2)
    watched.after_last(4, 4.0)

    assert watched.choose_interval(step_s=1e-6) == 256
    assert watched.choose_interval(step_s=1e3) == 1


def test_both_steps_of_a_comparison_count_as_its_cost() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=1, clock=CpuDeviceClock())
    seen = []
    for step in range(2):
        watched.begin_step(step)
        weight.grad = torch.ones(2)
        watched.after_last(4, 4.0)
        seen.append(watched._cost)

    assert 0.0 < seen[0] < seen[1]


def test_a_gain_follows_what_was_observed_since() -> None:
    noise = GradientNoise(init_batch=10)
    for _ in range(8):
        noise.observe(Norms(5.0, 10, 2.0, 40))
    before = noise.gain(20)
    noise.observe(Norms(9.0, 10, 1.0, 40))
    fresh = GradientNoise(init_batch=10)
    fresh.load_state_dict(noise.state_dict())

    assert noise.gain(20) > before
    assert noise.gain(20) == fresh.gain(20)
    assert noise.gain(40) > noise.gain(20)


def test_with_peers_a_rank_sees_its_own_gradient_before_the_mean() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=2, clock=CpuDeviceClock())
    watched.every = 4
    taken = []
    for step in range(5):
        watched.begin_step(step)
        weight.grad = torch.tensor([6.0, 8.0])
        if watched.measuring:
            watched.before_average()
            weight.grad /= 2.0
        watched.after_last(total=16, few=8.0)
        taken.append(watched.take_norms())

    seen = Norms(100.0, 8.0, 25.0, 16.0)
    assert taken == [seen, None, None, None, seen]


def test_what_averaging_by_hand_takes_is_part_of_the_cost() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    watched = Gradients([weight], ranks=2, clock=CpuDeviceClock())
    watched.begin_step(0)
    weight.grad = torch.ones(2)
    watched.before_average()
    time.sleep(0.02)
    watched.after_last(total=16, few=8.0)

    assert watched.choose_interval(step_s=1.0) >= 6
