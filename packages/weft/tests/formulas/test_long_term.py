"""Long-term GPU-time fairness of jobs and tenants, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from weft.formulas.fairness.shares import JobTimes, job_ratios, quotas_of, tenant_ratios

SUBMITTED, ENDED = np.array([0.0, 0.0]), np.array([1800.0, 1800.0])
NEED, USED = np.array([4.0, 8.0]), np.array([3600.0, 7200.0])


def test_jobs_deserve_an_equal_part_of_their_tenants_quota() -> None:
    ratios = job_ratios(JobTimes(["u", "u"], SUBMITTED, ENDED, NEED, USED), {"u": 8.0})

    assert ratios.tolist() == pytest.approx([0.5, 1.0])


def test_a_job_alone_deserves_what_it_asks_for() -> None:
    later = np.array([0.0, 900.0])

    ratios = job_ratios(JobTimes(["u", "u"], later, ENDED, NEED, USED), {"u": 8.0})

    # The first: 4 GPUs alone, then 4 as its half; the second: its half of 8 for 900 s.
    assert ratios.tolist() == pytest.approx([3600 / 7200, 7200 / 3600])


def test_a_job_that_never_ended_has_none() -> None:
    ratios = job_ratios(
        JobTimes(["u", "u"], SUBMITTED, np.array([1800.0, np.nan]), NEED, USED), {"u": 8.0}
    )

    assert ratios[0] == pytest.approx(0.5)
    assert np.isnan(ratios[1])


def test_a_tenant_deserves_its_quota_or_what_it_asks_for() -> None:
    tenants = ["u", "v"]

    ratios = tenant_ratios(JobTimes(tenants, SUBMITTED, ENDED, NEED, USED), {"u": 8.0, "v": 2.0})

    assert ratios == pytest.approx({"u": 3600 / (4 * 1800), "v": 7200 / (2 * 1800)})


def test_quotas_are_in_proportion_to_weights() -> None:
    assert quotas_of(["a", "b", "a"], 12, {"a": 3.0}) == {"a": 9.0, "b": 3.0}
    assert quotas_of([], 12) == {}
