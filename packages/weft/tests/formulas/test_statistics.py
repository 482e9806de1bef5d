"""Numbers people compare, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.formulas.statistics import (
    contention,
    contention_seen,
    finish_time_fairness,
    level,
    mean,
    percentile,
    static_finish_time_fairness,
)

EMPTY = np.zeros(0)


@pytest.mark.parametrize(
    ("count", "q", "expected"),
    [
        (10, 0.5, 6.0),
        (10, 0.99, 10.0),
        (10, 0.0, 1.0),
        (10, 1.0, 10.0),
        (100, 0.99, 100.0),
        (101, 0.99, 100.0),
        (1, 0.5, 1.0),
        (2, 0.5, 2.0),
        (0, 0.5, 0.0),
    ],
)
def test_a_percentile_is_the_element_at_int_q_n(count: int, q: float, expected: float) -> None:
    values = np.random.default_rng(0).permutation(np.arange(1.0, count + 1.0))

    assert percentile(values, q) == expected


def test_the_mean_of_nothing_is_nothing() -> None:
    assert (mean(EMPTY), mean(np.array([1.0, 2.0]))) == (0.0, 1.5)


def test_contention_is_unfinished_jobs_over_time() -> None:
    average, most = contention(np.array([0.0, 10.0]), np.array([20.0, 30.0]))

    assert average == pytest.approx(40.0 / 30.0)
    assert most == 2


def test_at_equal_times_jobs_leave_before_others_arrive() -> None:
    assert contention(np.array([0.0, 10.0]), np.array([10.0, 20.0])) == (1.0, 1)


def test_contention_of_nothing_and_of_no_time() -> None:
    assert contention(EMPTY, EMPTY) == (0.0, 0)
    assert contention(np.array([5.0, 5.0]), np.array([5.0, 5.0]))[0] == 2.0


def test_each_job_sees_the_crowd_of_its_own_stay() -> None:
    seen = contention_seen(np.array([0.0, 0.0, 50.0]), np.array([10.0, 20.0, 60.0]))

    assert seen.tolist() == pytest.approx([2.0, 1.5, 1.0])


def test_fairness_is_measured_against_an_equal_part_of_the_cluster() -> None:
    submit, end = np.array([0.0, 0.0]), np.array([10.0, 20.0])
    length, need = np.array([10.0, 10.0]), np.array([1.0, 1.0])

    rho = finish_time_fairness(submit, end, length, need, gpus=1)

    # Alone on half a GPU the first takes 20; on two thirds of one the second takes 15.
    assert rho.tolist() == pytest.approx([10.0 / 20.0, 20.0 / 15.0])


def test_a_job_smaller_than_its_part_runs_at_full_speed_there() -> None:
    rho = finish_time_fairness(
        np.array([0.0]), np.array([15.0]), np.array([10.0]), np.array([2.0]), gpus=8
    )

    assert rho.tolist() == pytest.approx([1.5])


def test_a_level_jumps_at_its_times_and_includes_the_instant() -> None:
    times, change = np.array([10.0, 0.0, 10.0, 30.0]), np.array([2.0, 1.0, -1.0, -2.0])

    values = level(times, change, np.array([-1.0, 0.0, 9.9, 10.0, 29.0, 30.0]))

    assert values.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 0.0]


def test_static_fairness_counts_all_jobs_of_the_trace_to_a_gpu() -> None:
    jct, length = np.array([300.0, 300.0]), np.array([100.0, 200.0])

    assert static_finish_time_fairness(jct, length, 1.5).tolist() == [2.0, 1.0]
    assert static_finish_time_fairness(jct, length, 0.5).tolist() == [3.0, 1.5]
