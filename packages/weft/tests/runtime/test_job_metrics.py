"""Metrics of a job in bounded space, from events that anyone may have written."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.codec.event_lines import readable_line
from weft.core.codec.plain_values import decode, encode
from weft.core.events.event import Measured, Noticed
from weft.core.model.job import JobId
from weft.runtime.loop.messages import Messages
from weft.runtime.records.metrics import (
    ALL_CURVES,
    CURVE,
    MOST_NAMES,
    MOST_POINTS,
    NO_METRICS,
    WIDTH,
    JobMetrics,
)

JOB = JobId("j")
ANYTHING = st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=80))


def measured(
    *points: tuple[str, float, float | None], attempt: int = 1, noted_at: float = 1.0
) -> Measured:
    names, steps, values = zip(*points, strict=True)
    return Measured(JOB, attempt, noted_at, names, steps, values)


def test_the_last_the_least_and_the_most_are_kept_with_their_steps() -> None:
    event = measured(("loss", 1, 3.0), ("loss", 2, 1.0), ("acc", 2, 0.5), ("loss", 3, 2.0))

    series = NO_METRICS.add(9.0, event).series

    loss = series["loss"]
    assert (loss.count, loss.step, loss.value, loss.at) == (3, 3, 2.0, 1.0)
    assert (loss.least, loss.least_step, loss.most, loss.most_step) == (1.0, 2, 3.0, 1)
    assert loss.curve() == [(1.0, 3.0, 1.0), (2.0, 1.0, 1.0), (3.0, 2.0, 1.0)]
    assert series["acc"].value == 0.5


def test_a_value_that_is_no_number_is_the_last_but_neither_least_nor_most() -> None:
    metrics = NO_METRICS.add(1.0, measured(("loss", 1, 3.0), ("loss", 2, None)))

    loss = metrics.series["loss"]
    assert (loss.value, loss.least, loss.most) == (None, 3.0, 3.0)
    assert loss.curve()[-1] == (2.0, None, 1.0)


@pytest.mark.parametrize("count", [CURVE, CURVE + 1, 1_000, 4_097, 10_000])
def test_a_curve_covers_the_run_evenly_and_ends_with_its_last_value(count: int) -> None:
    metrics = NO_METRICS
    for i in range(count):
        metrics = metrics.add(float(i), measured(("loss", i, -float(i))))

    curve = metrics.series["loss"].curve()
    steps = [step for step, _, _ in curve]
    assert CURVE / 2 <= len(curve) <= CURVE
    assert (steps[0], steps[-1]) == (0.0, count - 1)
    gaps = [after - before for before, after in pairwise(steps)]
    assert len({*gaps[:-1]}) == 1
    assert 0 < gaps[-1] <= gaps[0]


def test_another_attempt_replaces_what_it_does_again() -> None:
    first = [("loss", step, 10.0 - step) for step in range(6)]
    metrics = NO_METRICS.add(1.0, measured(*first))

    metrics = metrics.add(
        2.0, measured(("loss", 3, 6.5), ("loss", 4, 5.5), attempt=2, noted_at=2.0)
    )

    assert [(s, v) for s, v, _ in metrics.series["loss"].curve()] == [
        (0.0, 10.0), (1.0, 9.0), (2.0, 8.0), (3.0, 6.5), (4.0, 5.5),
    ]  # fmt: skip


def test_an_attempt_that_goes_back_on_its_own_keeps_all_of_it() -> None:
    metrics = NO_METRICS.add(1.0, measured(*[("loss", step, 1.0) for step in (1, 2, 1, 2)]))

    assert [step for step, _, _ in metrics.series["loss"].curve()] == [1.0, 2.0, 1.0, 2.0]


def test_space_is_bounded_whatever_is_said() -> None:
    metrics = NO_METRICS
    for i in range(200):
        points = [(f"m{name}", float(i), 1.0) for name in range(100)]
        metrics = metrics.add(1.0, measured(*points, noted_at=float(i)))

    assert len(metrics.series) == MOST_NAMES
    assert metrics.left_out == 200 * (100 - MOST_NAMES)
    assert sum(len(each.points) for each in metrics.series.values()) <= 2 * ALL_CURVES * WIDTH


def test_what_was_heard_before_a_restart_is_not_heard_again() -> None:
    metrics = NO_METRICS.add(1.0, measured(("loss", 1, 3.0), noted_at=5.0))

    assert metrics.has(1, 5.0)
    assert metrics.has(1, 4.0)
    assert not metrics.has(1, 5.1)
    assert not metrics.has(2, 0.5)


def test_they_are_read_back_as_they_were_written() -> None:
    metrics = NO_METRICS.add(1.0, measured(("loss", 1, 3.0), ("val", 1, None)))

    assert decode(JobMetrics, encode(metrics)) == metrics


@pytest.mark.parametrize(
    "event, words",
    [
        (measured(("", 1, 1.0)), "metric ''"),
        (measured(("x" * 65, 1, 1.0)), "metric 'xxx"),
        (measured(("a\nb", 1, 1.0)), "metric"),
        (measured(("loss", -1, 1.0)), "step -1"),
        (measured(("loss", nan, 1.0)), "step nan"),
        (measured(("loss", 1, True)), "is True"),
        (measured(*[("loss", 1.0, 1.0)] * (MOST_POINTS + 1)), "at most 1000"),
        (measured(("loss", 1.0, 1.0), noted_at=nan), "without a time"),
        (replace(measured(("loss", 1.0, 1.0)), names=("loss", "b")), "differ in number"),
    ],
)
def test_what_cannot_be_right_is_left_out_and_said(event: Measured, words: str) -> None:
    kept, notice = Messages().validate([event])

    assert isinstance(kept, Measured)
    assert len(kept.names) <= MOST_POINTS
    assert isinstance(notice, Noticed)
    assert words in notice.text


def test_a_loss_that_is_no_number_any_more_is_news_and_no_mistake() -> None:
    (kept,) = Messages().validate([measured(("loss", 1.0, nan), ("loss", 2.0, inf))])

    assert isinstance(kept, Measured)
    assert kept.values == (None, None)


@given(
    names=st.lists(ANYTHING, max_size=5),
    steps=st.lists(ANYTHING, max_size=5),
    values=st.lists(ANYTHING, max_size=5),
    noted_at=st.floats(),
)
def test_whatever_a_job_says_can_be_written_down_and_kept(
    names: list[str], steps: list[float], values: list[float], noted_at: float
) -> None:
    event = Measured(JOB, 1, noted_at, tuple(names), tuple(steps), tuple(values))

    kept = Messages().validate([event])[0]

    readable_line(1.0, kept)
    assert isinstance(kept, Measured)
    NO_METRICS.add(1.0, kept)
