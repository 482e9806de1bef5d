"""Pairs of jobs with CPU stages, measured on an H200, against what is predicted of them."""

from __future__ import annotations

import statistics

import pytest
from benchmarks.interference_cpu_errors import errors


@pytest.mark.parametrize("discipline", ["timeslicing", "mps"])
def test_a_job_that_tells_its_cpu_stage_is_predicted_as_measured(discipline: str) -> None:
    with_stage, shipped = (
        statistics.median(errors(discipline, with_stage=it)) for it in (True, False)
    )

    assert with_stage < 0.08
    assert with_stage < 0.5 * shipped
