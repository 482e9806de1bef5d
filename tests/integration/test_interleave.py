"""Four real jobs with different bottlenecks take turns on one slot, told and unmodified."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_interleaved_jobs_end_with_the_losses_they_have_alone() -> None:
    from benchmarks.interleave.__main__ import KINDS, run

    done = run(1.0, ["lock step", "unmodified"], lambda _: None)

    assert set(done["ways"]) == {"one at a time", "lock step", "unmodified"}
    for way in done["ways"].values():
        assert way["losses_equal"]
        assert set(way["speeds"]) == set(KINDS)
    # Strangers were let in beside each other, by stages that were measured.
    assert done["ways"]["unmodified"]["together_s"] > 0.0
