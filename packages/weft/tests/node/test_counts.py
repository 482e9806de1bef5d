"""Steps that watchers count in several processes, joined to one series that can be believed."""

from __future__ import annotations

import math

import pytest

from weft.base.messages import Counted
from weft.node.measuring.measurer import StepCounts


def counted(steps: float, at: float, **more: object) -> Counted:
    values = {"job": "j", "attempt": 1, "rank": 0, "pid": 7, "at": at, "steps": steps, **more}
    return Counted(**values)  # type: ignore[arg-type]


def test_steps_become_samples_and_a_rate() -> None:
    counts = StepCounts(0)

    for i in range(41):
        counts.count_report(counted(10.0 * i, 100.0 + i / 4), now=1000.0)

    assert counts.samples[-1] == (110.0, 400.0)
    assert counts.rate(105.0) == pytest.approx(40.0)


def test_an_old_past_is_kept_in_a_few_samples() -> None:
    counts = StepCounts(0)

    for i in range(4000):
        counts.count_report(counted(float(i), 100.0 + i / 4), now=10_000.0)

    assert len(counts.samples) < 500
    assert counts.samples[-1][0] - counts.samples[0][0] > 300.0
    assert counts.samples == sorted(counts.samples)


def test_processes_side_by_side_are_added_up_and_ranks_are_not() -> None:
    counts = StepCounts(0)

    counts.count_report(counted(5, 100.0), now=1000.0)
    counts.count_report(counted(7, 101.0, pid=8), now=1000.0)
    counts.count_report(counted(90, 102.0, pid=9, rank=1, held_gb=3.0), now=1000.0)

    assert counts.samples[-1][1] == 12.0
    assert counts.held_gb == 3.0


def test_a_process_that_became_another_program_goes_on_counting() -> None:
    counts = StepCounts(0)

    counts.count_report(counted(50, 100.0, total=50.0), now=1000.0)
    counts.count_report(counted(2, 101.0, total=20.0), now=1000.0)

    assert counts.samples[-1] == (101.0, 52.0)
    assert counts.total_steps == 70.0


def test_bars_of_the_preparation_are_forgotten_when_training_begins() -> None:
    counts = StepCounts(0)

    counts.count_report(counted(5000, 100.0, unit="bar"), now=1000.0)
    counts.count_report(counted(1, 101.0, unit="step"), now=1000.0)

    assert counts.samples == [(101.0, 1.0)]
    assert counts.unit == "step"


def test_the_time_waited_for_data_is_a_part_of_the_time() -> None:
    counts = StepCounts(0)

    counts.count_report(counted(1, 100.0, data_s=0.0), now=1000.0)
    counts.count_report(counted(9, 104.0, data_s=3.0), now=1000.0)

    assert counts.data_part == pytest.approx(0.75)


@pytest.mark.parametrize(
    "wrong",
    [
        counted(math.nan, 101.0),
        counted(math.inf, 101.0),
        counted(-1.0, 101.0),
        counted(1e12, 101.0),
        counted(6.0, math.nan),
        counted(6.0, -5.0),
        counted(6.0, 101.0, unit="duck"),
        counted(6.0, 101.0, total=math.nan),
        counted(6.0, 101.0, held_gb=-1.0),
        counted(6.0, 101.0, peak_gb=1e30),
    ],
)
def test_what_cannot_be_right_is_left_out(wrong: Counted) -> None:
    counts = StepCounts(0)
    counts.count_report(counted(5, 100.0), now=1000.0)

    assert not counts.count_report(wrong, now=1000.0)

    assert counts.samples == [(100.0, 5.0)]
    assert counts.dropped == 1


def test_a_clock_that_runs_ahead_is_set_to_ours() -> None:
    counts = StepCounts(0)

    counts.count_report(counted(5, 5000.0), now=1000.0)

    assert counts.samples == [(1000.0, 5.0)]


def test_a_thousand_processes_cannot_fill_our_memory() -> None:
    counts = StepCounts(0)

    for pid in range(1000):
        counts.count_report(counted(1, 100.0 + pid, pid=pid), now=5000.0)

    assert counts.samples[-1][1] == 64.0
