"""Real trainings that share a narrow link, told to begin their iterations at different times."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.time_shifts import COMPUTE_S, SEND_S, run


def test_two_jobs_on_one_link_are_faster_half_a_period_apart_than_in_step() -> None:
    found = run(iterations=8)

    # In step both have half of the link; apart they hardly meet.
    best = (COMPUTE_S + 2 * SEND_S) / (COMPUTE_S + SEND_S)
    assert 1.1 < found.in_step / found.apart < 1.1 * best
