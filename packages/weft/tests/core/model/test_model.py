"""Jobs and demands: numbers that mean nothing are refused where they are written down."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import LEAST_SHARE, Demand, Job, JobId


@pytest.mark.parametrize("share", [1e-300, 0.0, -0.5, LEAST_SHARE / 2, 1.5, nan, inf])
def test_a_share_is_a_part_of_a_device_that_can_be_counted(share: float) -> None:
    with pytest.raises(InvalidConfig, match="share"):
        Demand(1, share=share)


@pytest.mark.parametrize("sizes", [(-1, 0, 0), (4, 5, 0), (4, 1, 2), (4, -1, 8), (2_000_000, 0, 0)])
def test_gpus_lie_between_their_bounds(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidConfig, match="gpus"):
        Demand(*sizes)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("cpus", value) for value in (-1.0, nan, inf, 1e9)),
        *(("mem_gb", value) for value in (-1.0, nan, inf, 1e9)),
        *(("deadline", value) for value in (-1.0, nan, inf)),
        *(("priority", value) for value in (nan, inf, -inf)),
    ],
)
def test_a_number_that_means_nothing_is_refused_by_the_name_of_its_field(
    field: str, value: float
) -> None:
    wrong: dict[str, Any] = {field: value}

    with pytest.raises(InvalidConfig, match=f"'j': {field} is"):
        Job(JobId("j"), **wrong)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_hints_are_finite(value: float) -> None:
    with pytest.raises(InvalidConfig, match=r"hints\.duration_s"):
        Job(JobId("j"), hints={"duration_s": value})


def test_what_people_ask_for_is_taken() -> None:
    job = Job(JobId("j"), 0.0, Demand(1, share=LEAST_SHARE), cpus=0.5, mem_gb=2.0, deadline=60.0)

    assert job.demand.share == LEAST_SHARE
