"""The inner problem: epsilon grid against HiGHS, dense scans and the exact scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from weft.core.state.cells import Floats
from weft.solve.linear_program import Sparse, maximise
from weft_papers.smd.sum_of_ratios import Inner, _bounds, _points, by_grid, by_scan

EPS = st.sampled_from((0.5, 0.2, 0.1, 0.01))


@st.composite
def problems(draw: Any, rows: int = 1) -> Inner:
    def column(low: float, high: float) -> Floats:
        return np.array(
            [draw(st.integers(int(10 * low), int(10 * high))) / 10 for _ in range(rows)]
        )

    def matrix(low: float, high: float) -> Floats:
        return np.stack([column(low, high) for _ in range(3)], axis=1)

    ratios = np.stack([column(0, 50), column(1, 500), column(0, 100), column(0, 100)], axis=1)
    ratios[:, draw(st.sampled_from((2, 3)))] = 0.0
    worker, server = matrix(0.0, 4.0), matrix(0.0, 4.0)
    worker[:, 0], server[:, 0] = 1.0, 0.0
    caps = worker + server + matrix(0.0, 40.0)
    most = np.floor(column(1, 24))
    return Inner(ratios, worker, server, caps, np.ones(rows), most, np.floor(column(1, 24)))


@examples(60)
@given(problems(), EPS)
def test_the_grid_is_within_eps_of_the_best_that_need_not_be_whole(
    problem: Inner, eps: float
) -> None:
    workers, servers, _ = _points(problem, eps)
    best = np.nanmin(problem.seconds(workers, servers))

    w = np.linspace(1.0, problem.most[0], 4001)[None, :]
    p = problem.room(w)
    seconds = np.where(p >= 1.0, problem.seconds(w, np.maximum(p, 1.0)), np.inf)
    assert best <= (1.0 + eps) * seconds.min() + 1e-9
    assert np.nanmax(workers) <= problem.most[0] + 1e-9
    assert np.nanmin(servers) >= 1.0 - 1e-9


@examples(60)
@given(problems(), st.floats(0.0, 1.0))
def test_each_program_is_solved_as_highs_solves_it(problem: Inner, place: float) -> None:
    from weft_papers.smd import sum_of_ratios as ratios

    low, high = ratios._bounds(problem)
    theta = float(low[0] ** (1.0 - place) * high[0] ** place) if low[0] > 0.0 else 1.0
    _, _, b, c = problem.ratios[0]
    rows = [[o, s] for o, s in zip(problem.worker[0], problem.server[0], strict=True)]
    limits = np.append(problem.caps[0], -c)
    matrix = Sparse.of(np.array([*rows, [b, -theta]]))
    high_corner = np.array([problem.most[0], problem.servers[0]])

    ours = ratios._most_workers(problem, np.array([[theta]]))[0, 0]

    exact = maximise(np.array([1.0, 0.0]), matrix, limits, low=np.ones(2), high=high_corner)
    assert np.isclose(ours, exact.value, rtol=1e-6)


@examples(60)
@given(problems(rows=3))
def test_whole_numbers_keep_to_caps_and_never_beat_the_scan(problem: Inner) -> None:
    ours, exact = by_grid(problem, 0.1), by_scan(problem)

    used = ours.workers[:, None] * problem.worker + ours.servers[:, None] * problem.server
    assert (used <= problem.caps + 1e-6).all()
    assert (ours.seconds >= exact.seconds - 1e-9).all()
    assert (ours.workers >= 1.0).all()
    assert (ours.servers >= 1.0).all()


def test_over_random_jobs_rounding_costs_little() -> None:
    rng = np.random.default_rng(1)
    n = 2000
    ratios = np.stack(
        [rng.uniform(0, 50, n), rng.uniform(50, 500, n), rng.uniform(1, 60, n), np.zeros(n)], axis=1
    )
    worker = np.stack([np.ones(n), rng.uniform(1, 4, n)], axis=1)
    server = np.stack([np.zeros(n), rng.uniform(1, 4, n)], axis=1)
    caps = np.stack([rng.integers(2, 17, n), rng.uniform(10, 80, n)], axis=1).astype(float)
    problem = Inner(ratios, worker, server, caps, np.ones(n), np.full(n, 16.0), np.full(n, 32.0))

    ours, exact = by_grid(problem, 0.1), by_scan(problem)

    assert (ours.seconds <= 1.1 * exact.seconds + 1e-9).all()
    assert np.mean(ours.seconds <= exact.seconds * (1.0 + 1e-9)) > 0.9


def test_a_smaller_cap_never_makes_a_job_faster() -> None:
    rng = np.random.default_rng(2)
    base = rng.uniform(10, 60, (50, 2))
    for grid in (by_grid, by_scan):
        seconds = []
        for part in (1.0, 0.5, 0.25):
            problem = Inner(
                np.tile([10.0, 300.0, 20.0, 0.0], (50, 1)),
                np.tile([1.0, 2.0], (50, 1)),
                np.tile([0.0, 3.0], (50, 1)),
                np.maximum(base * part, [1.0, 5.0]),
                np.ones(50),
                np.full(50, 30.0),
                np.full(50, 30.0),
            )
            seconds.append(grid(problem).seconds)
        # The grid is only within eps: a smaller cap may by luck be rounded better.
        slack = 1.1 if grid is by_grid else 1.0 + 1e-12
        assert (seconds[0] <= slack * seconds[1]).all()
        assert (seconds[1] <= slack * seconds[2]).all()


def test_a_job_that_fits_nowhere_takes_for_ever() -> None:
    ones = np.ones((1, 1))
    problem = Inner(
        np.array([[0.0, 1.0, 1.0, 0.0]]),
        ones,
        ones,
        ones * 1.5,
        np.ones(1),
        np.full(1, 4.0),
        np.full(1, 4.0),
    )

    assert np.isinf(by_scan(problem).seconds[0])
    assert np.isinf(by_grid(problem).seconds[0])


def test_the_second_ratio_is_least_with_the_fewest_workers_allowed() -> None:
    # Two workers leave 8 of 12 cores, room for four servers: (3 x 2 + 5) / 4. At most four
    # workers leave room for one: 3 x 4 + 5.
    problem = Inner(
        np.array([[0.0, 1.0, 3.0, 5.0]]),
        np.array([[1.0, 2.0]]),
        np.array([[0.0, 2.0]]),
        np.array([[8.0, 12.0]]),
        np.array([2.0]),
        np.array([4.0]),
        np.array([99.0]),
    )

    low, high = _bounds(problem)

    assert (low.tolist(), high.tolist()) == ([2.75], [17.0])
