"""Waiting times, and work that was lost."""

from __future__ import annotations

from weft.core.latency import Histogram
from weft.core.model.job import JobId
from weft.runtime.records.ledger import Tallies

A = JobId("a")


def test_counts_are_cumulative_and_the_last_bound_is_infinite() -> None:
    times = Histogram((1.0, 10.0))
    for value in (0.5, 1.0, 5.0, 50.0):
        times.add(value)

    assert times.cumulative() == [(1.0, 2), (10.0, 3), (float("inf"), 4)]
    assert (times.count, times.total) == (4, 56.5)


def test_what_was_done_since_the_last_checkpoint_is_lost_when_a_job_is_to_go_on() -> None:
    tallies = Tallies()
    tallies.count_start(A, 100.0, 20.0)
    tallies.count_save(A, 160.0)
    tallies.count_end(A, "nlp", 170.0, 4.0, goes_on=True)
    tallies.count_start(A, 200.0, None)
    tallies.count_end(A, "nlp", 300.0, 4.0, goes_on=False)

    assert tallies.lost_gpu_s == {"nlp": 40.0}
    assert tallies.waits.count == 1


def test_they_go_on_from_what_was_saved() -> None:
    tallies, again = Tallies(), Tallies()
    tallies.count_start(A, 100.0, 20.0)

    again.load(tallies.save())
    again.count_end(A, "nlp", 170.0, 4.0, goes_on=True)

    assert again.waits.cumulative() == tallies.waits.cumulative()
    assert again.lost_gpu_s == {"nlp": 280.0}
    assert not tallies.lost_gpu_s
