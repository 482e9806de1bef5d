"""When a job starts, as it is told."""

from __future__ import annotations

from weft.app.insight.present import Estimate
from weft.service.jobs.what_if_work import answer_start


def test_a_start_that_was_only_counted_names_no_simulations() -> None:
    counted = answer_start(Estimate((60.0, 90.0), counted=True))
    simulated = answer_start(Estimate((60.0, 90.0)))

    assert counted is not None
    assert simulated is not None
    assert (counted.simulations, simulated.simulations) == (0, 2)
    assert counted.p50 == simulated.p50
