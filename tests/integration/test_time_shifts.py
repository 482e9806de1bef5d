"""Real trainings that share a narrow link, told to begin their iterations at different times."""

from __future__ import annotations

import pytest
from benchmarks.time_shifts import run


@pytest.mark.slow  # a minute, mostly of waiting
def test_two_jobs_on_one_link_are_faster_half_a_period_apart_than_in_step() -> None:
    done = run(iterations=8)

    # In step both have half of the link, and an iteration takes 1.47 times as long; apart they
    # hardly meet. On a machine that is busy with other things they meet now and then.
    assert done.in_step / done.apart > 1.1
