"""Bounds of cases that can be worked by hand."""

from __future__ import annotations

import pytest

import weft
from weft.bounds.average import BoundedJob, at_most, bound_average, halfway, part_of


def job(at: float, gpus: float, seconds: float, kind: str = "v100") -> BoundedJob:
    return BoundedJob(at, ((kind, gpus, seconds),))


def test_two_jobs_of_the_whole_cluster_run_after_each_other() -> None:
    bound = bound_average([job(0, 4, 10), job(0, 4, 10)], {"v100": 4})

    assert bound.alone == pytest.approx(10.0)
    assert bound.srpt == pytest.approx(15.0)
    assert bound.best == pytest.approx(15.0)


def test_gangs_of_more_than_half_the_cluster_run_after_each_other() -> None:
    bound = bound_average([job(0, 5, 10), job(0, 5, 10)], {"v100": 8})

    assert bound.best == pytest.approx(15.0)


def test_two_halves_of_the_cluster_run_side_by_side() -> None:
    assert bound_average([job(0, 4, 10), job(0, 4, 10)], {"v100": 8}).best == pytest.approx(10.0)


def test_jobs_of_different_kinds_do_not_wait_for_each_other() -> None:
    jobs = [job(0, 4, 10), job(0, 4, 10), job(0, 2, 30, "t4")]

    assert bound_average(jobs, {"v100": 4, "t4": 2}).best == pytest.approx((10 + 20 + 30) / 3)


def test_a_later_job_is_not_expected_before_it_comes() -> None:
    assert bound_average([job(0, 4, 10), job(100, 4, 10)], {"v100": 4}).best == pytest.approx(10)


def test_an_elastic_job_counts_at_its_fastest_alone_and_at_its_cheapest_in_a_crowd() -> None:
    elastic = BoundedJob(0, (("v100", 1, 8.0), ("v100", 4, 4.0)))  # twice as fast on four times

    assert bound_average([elastic], {"v100": 4}).best == pytest.approx(4.0)
    crowd = bound_average([elastic] * 40, {"v100": 4}).best
    assert 40.0 <= crowd <= (8 + 16 + 24 + 32 + 40 + 48 + 56 + 64 + 72 + 80) / 10


@pytest.mark.parametrize("size", [part_of, at_most(1), at_most(2), halfway(part_of, at_most(1))])
def test_gangs_that_fit_side_by_side_never_count_more_than_the_cluster(size: object) -> None:
    import numpy as np

    assert callable(size)
    rng = np.random.default_rng(0)
    for _ in range(200):
        total = int(rng.integers(1, 13))
        gangs, left = [], total
        while left:
            gangs.append(int(rng.integers(1, left + 1)))
            left -= gangs[-1]
        assert size(np.array(gangs, dtype=float), total).sum() <= 1.0 + 1e-12, (gangs, total)


def test_a_policy_that_shares_gpus_has_no_ratio_to_the_bound() -> None:
    result = weft.compare(
        "colocated", ["fifo", "gandiva"], "1x4:v100", jobs=10, load=1.2, bound=True
    )

    assert result.mean("fifo", "jct_over_bound") >= 1.0
    assert "jct_over_bound" not in result.outcomes["gandiva"][0].metrics
    assert result["bound"]["avg_jct_h"] == pytest.approx(result.bound())


def test_no_policy_is_below_the_bound_of_jobs_that_tune_themselves() -> None:
    result = weft.compare(
        "pollux", ["fifo", "weft"], "2x4:a100", jobs=6, load=1.5, seeds=(1, 2), bound=True
    )

    assert result.mean("weft", "jct_over_bound") >= 1.0
    assert result.mean("fifo", "jct_over_bound") >= 1.0
    assert result.bound() > 0.0


def test_a_first_start_counts_where_the_truth_says_how_long_it_takes() -> None:
    plain = BoundedJob(0, (("v100", 4, 10.0),))
    late = BoundedJob(0, (("v100", 4, 10.0),), start=5.0)

    assert bound_average([late], {"v100": 4}).best == pytest.approx(15.0)
    assert bound_average([late, plain], {"v100": 4}).best == pytest.approx((10.0 + 20.0) / 2)


def test_prices_know_that_no_job_has_both_its_cheap_size_and_its_fast_one() -> None:
    # A job takes 8 s on one GPU and 4 s on all four. With one GPU each no job ever waits.
    ways = (("v100", 1.0, 8.0), ("v100", 4.0, 4.0))

    bound = bound_average([BoundedJob(2.5 * i, ways) for i in range(40)], {"v100": 4})

    assert bound.busy == pytest.approx(4.0)
    assert 5.0 < bound.market == bound.best <= 8.0


def test_jobs_whose_loss_falls_have_no_bound_and_it_is_said_why() -> None:
    result = weft.simulate("losses", "fifo", "2x4:v100", jobs=3, bound=True)

    assert not result.bounds
    assert "change their speed" in result["no_bound"]
