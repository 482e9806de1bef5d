"""Which jobs start without a decision and until when, and what users without a weight get."""

from __future__ import annotations

from weft.core.model.job import Demand, Job, JobId
from weft.policies.las import Las
from weft.testing import view_of
from weft_papers.gandiva_fair.users import entitle


def test_who_comes_alone_is_looked_at_again_in_a_quantum_unless_there_are_queues() -> None:
    free = view_of(2).free
    small, large = (Job(JobId("a"), demand=Demand(gpus)) for gpus in (1, 4))

    whole = Las(quantum=100.0).fast_start(small, free, 50.0)
    queued = Las(quantum=100.0, thresholds=(10.0,)).fast_start(small, free, 50.0)

    assert whole is not None
    assert queued is not None
    assert (whole.wake_at, queued.wake_at) == (150.0, None)
    assert whole.changes == queued.changes
    assert Las().fast_start(large, free, 50.0) is None


def test_a_user_without_a_weight_has_half_of_what_a_weight_of_two_gives() -> None:
    assert entitle(6.0, {"a": 6.0, "b": 6.0}, {"a": 2.0}) == {"a": 4.0, "b": 2.0}
