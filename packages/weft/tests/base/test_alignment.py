"""When a job with a time shift waits for its beat."""

from __future__ import annotations

import pytest

from weft.base.alignment import REST, Alignment


def test_without_a_beat_nobody_waits() -> None:
    assert Alignment().measure_wait(12.34) == 0.0


def test_the_first_iteration_waits_for_the_beat() -> None:
    beat = Alignment(0.2, 0.05)

    assert beat.measure_wait(10.0) == pytest.approx(0.05)


def test_a_job_that_is_a_little_late_goes_on_and_one_that_is_early_waits_each_time() -> None:
    beat = Alignment(0.2, 0.0, 0)

    waits = [beat.measure_wait(now) for now in (10.0, 10.009, 10.191, 10.185, 10.385)]

    assert waits == pytest.approx([0.0, 0.0, 0.009, 0.015, 0.015])


def test_a_job_that_is_always_late_waits_for_a_whole_beat_only_now_and_then() -> None:
    beat = Alignment(0.2, 0.0)
    now, waited, count = 10.0, 0.0, 10 * REST

    for _ in range(count):
        wait = beat.measure_wait(now)
        waited += wait
        now += wait + 0.22

    assert 0.0 < waited < 0.05 * 0.2 * count


def test_another_beat_is_taken_up_at_once_and_the_same_again_is_no_news() -> None:
    beat = Alignment(0.2, 0.0)
    beat.measure_wait(10.05)

    beat.change(0.2, 0.0)
    assert beat.measure_wait(10.05) == 0.0

    beat.change(0.2, 0.1)
    assert beat.measure_wait(10.05) == pytest.approx(0.05)
