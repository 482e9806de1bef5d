"""Throughput, statistical efficiency and batch choice, on the numbers worked out for Pollux."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.goodput_example import LIMITS, NOISE, TIMES

from weft.base.step_times import TINY, StepTime
from weft.perf.goodput.model import BatchBounds, BatchChoice, Floats, Noise, best_batch, trials

seconds = st.floats(1e-4, 1.0)
slopes = st.floats(1e-6, 0.1)
step_times = st.builds(
    StepTime, seconds, slopes, seconds, slopes, seconds, slopes, st.floats(1.0, 10.0)
)
noises = st.builds(
    Noise, st.floats(1e-3, 1e3), st.floats(1e-6, 1e3), st.sampled_from((8, 32, 128, 400))
)
limits = st.builds(
    BatchBounds,
    st.sampled_from((512, 1000, 4096)),
    st.sampled_from((1, 16, 32)),
    st.integers(64, 1024),
)
shapes = st.tuples(st.integers(1, 4), st.integers(1, 8)).map(lambda s: (s[0], s[0] * s[1]))


def opt_s(times: StepTime, nodes: int, replicas: int, local: int, accumulate: int = 1) -> float:
    """Seconds of an iteration: its samples over samples per second."""
    samples = replicas * local * accumulate
    return float(samples / times.throughput(nodes, replicas, local, accumulate))


def split_fixed(
    times: StepTime, noise: Noise, shape: tuple[int, int], bounds: BatchBounds, batch: float
) -> BatchChoice:
    """The best division of one global batch, however small its parts."""
    nodes, replicas = shape
    choices = trials(times, nodes, replicas, noise.init, bounds, batch)
    return choices.best((noise.sqr, noise.var))


# ---- the table of examples


@pytest.mark.parametrize(
    ("shape", "grad", "sync", "step", "iteration", "speed", "goodput"),
    [
        ((1, 1, 128, 1), 0.178, 1e-8, 0.178, 0.178, 719.1011, 719.1011),
        ((1, 4, 128, 1), 0.178, 0.022, 0.1793544, 0.1793544, 2854.6833, 1784.1770),
        ((2, 8, 128, 1), 0.178, 0.052, 0.1854400, 0.1854400, 5522.0012, 2300.8338),
        ((2, 8, 128, 3), 0.178, 0.052, 0.1854400, 0.5414400, 5673.7587, 1013.1712),
        ((1, 2, 64, 1), 0.114, 0.02, 0.1157411, 0.1157411, 1105.9167, 1105.9167),
        ((1, 1, 64, 2), 0.114, 1e-8, 0.114, 0.228, 561.4035, 561.4035),
    ],
)
def test_a_row_of_the_worked_examples(
    shape: tuple[int, int, int, int],
    grad: float,
    sync: float,
    step: float,
    iteration: float,
    speed: float,
    goodput: float,
) -> None:
    nodes, replicas, local, accumulate = shape

    throughput = TIMES.throughput(nodes, replicas, local, accumulate)

    assert TIMES.grad(local) == pytest.approx(grad)
    assert TIMES.sync(nodes, replicas) == pytest.approx(sync)
    assert TIMES.step(nodes, replicas, local) == pytest.approx(step)
    assert opt_s(TIMES, nodes, replicas, local, accumulate) == pytest.approx(iteration)
    assert throughput == pytest.approx(speed)
    batch = replicas * local * accumulate
    assert throughput * NOISE.efficiency(batch) == pytest.approx(goodput)


@pytest.mark.parametrize(
    ("batch", "efficiency"),
    [
        (128, 1.0),
        (256, 0.833333),
        (512, 0.625),
        (1024, 0.416667),
        (3072, 0.178571),
        (4096, 0.138889),
    ],
)
def test_efficiency_falls_with_the_batch(batch: int, efficiency: float) -> None:
    phi = NOISE.init * NOISE.var / NOISE.sqr

    actual = NOISE.efficiency(batch)

    assert actual == pytest.approx(efficiency, abs=1e-6)
    assert actual == pytest.approx((phi + NOISE.init) / (phi + batch))


def test_gains_of_larger_batches_are_those_of_adascale() -> None:
    noise = Noise(0.4, 1.6, 1)

    gains = noise.gain(np.array((1.0, 2.0, 4.0, 8.0, 16.0, 32.0)))

    assert gains == pytest.approx((1, 1.666667, 2.5, 3.333333, 4, 4.444444), abs=1e-6)


def test_without_any_statistics_every_iteration_counts_as_one() -> None:
    assert Noise(0.0, 0.0, 128).gain(512) == 1.0


# ---- the batch to train with


@pytest.mark.parametrize(
    ("shape", "goodput", "local"),
    [
        ((1, 1), 719.1011, 128),
        ((1, 2), 1193.4374, 113),
        ((1, 4), 1867.2732, 81),
        ((2, 8), 2556.5498, 67),
        ((4, 16), 3234.0865, 54),
    ],
)
def test_the_best_batch_of_the_worked_examples(
    shape: tuple[int, int], goodput: float, local: int
) -> None:
    best = best_batch(TIMES, NOISE, *shape, LIMITS)

    assert best.goodput == pytest.approx(goodput)
    assert (best.local, best.accumulate) == (local, 1)


@pytest.mark.parametrize(
    ("shape", "goodput", "local", "accumulate"),
    [((1, 1), 348.5839, 256, 4), ((1, 4), 1390.7458, 256, 1), ((2, 8), 2300.8338, 128, 1)],
)
def test_a_fixed_batch_is_split_over_replicas_and_steps(
    shape: tuple[int, int], goodput: float, local: int, accumulate: int
) -> None:
    split = split_fixed(TIMES, NOISE, shape, LIMITS, 1024.0)

    assert split.goodput == pytest.approx(goodput)
    assert (split.local, split.accumulate) == (local, accumulate)


def test_a_single_gpu_accumulates_as_soon_as_it_grows_its_batch() -> None:
    noisy = Noise(1e-3, 2.0, 128)  # large batches are nearly free

    best = best_batch(TIMES, noisy, 1, 1, LIMITS)

    assert best.accumulate >= 2
    assert best.local * best.accumulate > noisy.init


def test_an_allocation_whose_smallest_batch_is_too_large_has_no_goodput() -> None:
    alone = best_batch(TIMES, NOISE, 16, 256, BatchBounds(4096, 32, 256))
    many = best_batch(TIMES, NOISE, np.array([16]), np.array([256]), BatchBounds(4096, 32, 256))

    assert alone.goodput == many.goodput[0] == 0.0


def test_a_fixed_batch_may_be_split_below_what_a_job_would_choose() -> None:
    split = split_fixed(TIMES, NOISE, (1, 64), LIMITS, 1024.0)

    assert split.local == 16  # a job that chooses takes at least 32
    assert split.goodput > 0.0


@given(step_times, noises, limits, st.lists(shapes, min_size=1, max_size=5))
def test_cases_together_are_answered_as_one_by_one(
    times: StepTime, noise: Noise, bounds: BatchBounds, cases: list[tuple[int, int]]
) -> None:
    nodes, replicas = np.array(cases, dtype=float).T

    together = best_batch(times, noise, nodes, replicas, bounds)

    alone = [best_batch(times, noise, n, k, bounds) for n, k in cases]
    assert together.goodput == pytest.approx([c.goodput for c in alone], rel=1e-9)
    for i, choice in enumerate(alone):
        again = goodput_of(times, noise, cases[i], BatchChoice(*(float(c[i]) for c in together)))
        assert again == pytest.approx(choice.goodput, rel=1e-9)


def test_parameters_of_many_jobs_broadcast() -> None:
    both = [np.array([p, 2.0 * p]) for p in TIMES]
    jobs = StepTime(*both)._replace(gamma=2.0)

    best = best_batch(jobs, NOISE, 1, np.array([4, 4]), LIMITS)

    assert best.goodput == pytest.approx([1867.2732, 1867.2732 / 2.0])
    assert best.goodput.shape == (2,)


def test_more_cases_than_fit_a_chunk_are_all_answered() -> None:
    replicas = np.tile((1.0, 2.0, 4.0), 200)

    best = best_batch(TIMES, NOISE, 1, replicas, LIMITS)

    assert best.goodput == pytest.approx(np.tile((719.1011, 1193.4374, 1867.2732), 200))


# ---- laws


def goodput_of(times: StepTime, noise: Noise, shape: tuple[int, int], choice: BatchChoice) -> float:
    if choice.goodput == 0.0:
        return 0.0
    nodes, replicas = shape
    speed = times.throughput(nodes, replicas, choice.local, choice.accumulate)
    return float(speed * noise.efficiency(replicas * choice.local * choice.accumulate))


@given(step_times, shapes, st.integers(1, 1000), st.integers(1, 9))
def test_an_iteration_takes_longer_with_more_of_anything(
    times: StepTime, shape: tuple[int, int], local: int, accumulate: int
) -> None:
    nodes, replicas = shape

    now = opt_s(times, nodes, replicas, local, accumulate)

    slack = 1.0 - 1e-12
    assert opt_s(times, nodes, replicas, local + 1, accumulate) >= now * slack
    assert opt_s(times, nodes, replicas, local, accumulate + 1) >= now * slack
    assert opt_s(times, nodes, replicas + nodes, local, accumulate) >= now * slack


@given(noises, st.lists(st.floats(1.0, 100.0), min_size=2, max_size=6))
def test_efficiency_never_rises_and_never_falls_faster_than_the_batch_grows(
    noise: Noise, scales: list[float]
) -> None:
    batches = noise.init * np.sort(scales)

    efficiency: Floats = noise.efficiency(batches)

    assert (np.diff(efficiency) <= 1e-12).all()
    assert (efficiency >= noise.init / batches * (1.0 - 1e-12)).all()
    assert (efficiency <= 1.0 + 1e-12).all()


@given(step_times, noises, limits, shapes)
def test_the_best_batch_keeps_its_bounds_and_its_word(
    times: StepTime, noise: Noise, bounds: BatchBounds, shape: tuple[int, int]
) -> None:
    replicas = shape[1]

    best = best_batch(times, noise, *shape, bounds)

    if best.goodput == 0.0:
        return
    batch = replicas * best.local * best.accumulate
    assert bounds.min_local <= best.local <= bounds.max_local
    assert best.accumulate >= 1
    assert batch >= noise.init
    assert batch < bounds.max_batch + replicas * best.accumulate + TINY
    speed = times.throughput(*shape, best.local, best.accumulate)
    assert best.goodput <= speed * (1.0 + 1e-9)
    assert best.goodput == pytest.approx(goodput_of(times, noise, shape, best), rel=1e-9)


@given(step_times, noises)
def test_one_gpu_at_the_initial_batch_makes_its_throughput(times: StepTime, noise: Noise) -> None:
    split = split_fixed(times, noise, (1, 1), BatchBounds(4096, 1, 1024), noise.init)

    assert split.goodput == pytest.approx(times.throughput(1, 1, noise.init))
