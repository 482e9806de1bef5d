"""When checkpoints are due, by a clock that the test turns."""

from __future__ import annotations

from weft_train.checkpoints.save_times import SaveTimes


class Clock:
    """Says `now`, which passes when the test says so."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def saves_until(end_s: float, times: SaveTimes, clock: Clock, took_s: float = 0.0) -> list[float]:
    """When checkpoints were taken, a look a second."""
    began, saves = clock.now, []
    times.start_clock()
    while clock.now < began + end_s:
        clock.now += 1.0
        if times.is_due():
            saves.append(clock.now - began)
            times.note_saved(took_s)
    return saves


def test_the_first_checkpoint_comes_within_seconds_and_the_pauses_grow_to_the_interval() -> None:
    clock = Clock(100.0)

    saved_at = saves_until(400.0, SaveTimes(120.0, 5.0, clock), clock)

    assert saved_at == [5.0, 15.0, 35.0, 75.0, 155.0, 275.0, 395.0]


def test_a_short_interval_is_kept_from_the_start() -> None:
    clock = Clock(100.0)

    assert saves_until(10.0, SaveTimes(2.0, 5.0, clock), clock) == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_checkpoints_that_take_long_come_rarely() -> None:
    clock = Clock(100.0)

    assert saves_until(400.0, SaveTimes(120.0, 5.0, clock), clock, took_s=2.0) == [5.0, 205.0]


def test_an_interval_of_zero_saves_whenever_asked() -> None:
    clock = Clock(100.0)

    saved_at = saves_until(3.0, SaveTimes(0.0, 5.0, clock), clock, took_s=9.0)

    assert saved_at == [1.0, 2.0, 3.0]


def test_nothing_is_due_before_training_begins() -> None:
    clock = Clock(100.0)
    times = SaveTimes(0.0, 5.0, clock)
    clock.now += 1e6

    assert not times.is_due()
