"""Reasons that many jobs share, as those see them who watch."""

from __future__ import annotations

from weft.core.model.job import JobId
from weft.service.streams.live_updates import Reasons


def test_reasons_that_no_job_has_are_forgotten_and_their_numbers_not_given_again() -> None:
    reasons = Reasons()
    gpus, quota, tenant = (reasons.number_of_cause(key, f"for {key}", JobId(key)) for key in "gqt")

    reasons.forget_unused({quota}, most=3)
    assert [*reasons.texts] == [gpus, quota, tenant]
    reasons.forget_unused({quota}, most=2)

    assert reasons.texts == {quota: "for q"}
    assert reasons.number_of_cause("q", "still for q", JobId("other")) == quota
    assert reasons.number_of_cause("g", "for g again", JobId("g")) > tenant
