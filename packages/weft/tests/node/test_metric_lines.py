"""Metrics on their way into an attempt's log."""

from __future__ import annotations

import time
from typing import Any

import pytest

from weft.base.messages import Metrics
from weft.node.measuring.metric_lines import ROOM, MetricLines
from weft.wire.attempt import AttemptSpec

SPEC = AttemptSpec("j", 1, ("true",), ".", "", (0,))


class Written:
    """A journal that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, event: str, **values: Any) -> None:
        self.lines.append({"event": event, **values})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def lines_of(journal: Written, spec: AttemptSpec = SPEC) -> MetricLines:
    return MetricLines(spec, journal)  # type: ignore[arg-type]


def said(*rows: tuple[str, float, float | None], rank: int = 0) -> Metrics:
    names, steps, values = zip(*rows, strict=True)
    return Metrics("j", 1, rank, names, steps, values)


def test_values_wait_for_their_turn_and_are_written_in_one_line(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    lines.take(0, said(("loss", 1.0, 0.5), ("loss", 2.0, 0.4)))
    lines.poll()
    assert journal.lines == []
    clock[0] = 1.0
    lines.poll()

    (line,) = journal.lines
    assert line["event"] == "metrics"
    assert (line["names"], line["steps"], line["values"]) == (
        ("loss", "loss"), (1.0, 2.0), (0.5, 0.4),
    )  # fmt: skip


def test_lines_are_further_apart_the_longer_it_runs(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    for half in range(7_200):
        clock[0] = half / 2
        lines.take(0, said(("loss", float(half), 1.0)))
        lines.poll()

    assert 400 < len(journal.lines) < 800  # of an hour; 720 were five seconds each


def test_more_than_there_is_room_for_is_thinned_and_the_last_stays(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    for step in range(5_000):
        lines.take(0, said(("loss", float(step), 1.0)))
    lines.write()

    steps = journal.lines[0]["steps"]
    assert len(steps) <= ROOM
    assert steps[-1] == 4_999.0


def test_values_without_a_step_are_counted_and_bad_ones_left_out(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    lines.take(0, said(("loss", -1.0, 0.5), ("loss", -1.0, float("nan")), ("a\nb", 1.0, 1.0)))
    lines.write()

    assert (journal.lines[0]["steps"], journal.lines[0]["values"]) == ((0.0, 1.0), (0.5, None))


def test_only_the_first_rank_counts(clock: list[float]) -> None:
    journal, other = Written(), Written()
    lines = lines_of(journal)

    lines.take(1, said(("loss", 1.0, 1.0), rank=1))
    lines.write()
    elsewhere = lines_of(other, AttemptSpec("j", 1, ("true",), ".", "", (0,), first_rank=4))
    elsewhere.take(0, said(("loss", 1.0, 1.0)))
    elsewhere.write()

    assert journal.lines == other.lines == []


def test_a_report_has_metrics_too_unless_they_come_by_themselves(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    lines.take(0, said(("val", 3.0, 0.9)))
    lines.take_report(0, {"loss": 0.5, "user.val": 0.9, "user.lr": 0.1, "steps": 7.0, "batch": 8})
    lines.write()

    rows = zip(*(journal.lines[0][part] for part in ("names", "steps", "values")), strict=True)
    assert [*rows] == [("val", 3.0, 0.9), ("lr", 7.0, 0.1), ("loss", 7.0, 0.5)]


def test_what_is_printed_counts_unless_the_program_says_it_to_a_library(clock: list[float]) -> None:
    journal = Written()
    lines = lines_of(journal)

    lines.take(0, said(("val", 3.0, 0.9)))
    lines.take_report(0, {"loss": 0.5, "steps": 7.0})
    for _ in range(2):
        lines.take_printed(0, [("val", 1.0, 1.0), ("loss", 1.0, 1.0), ("acc", 1.0, 1.0)])
    lines.write()

    rows = zip(*(journal.lines[0][part] for part in ("names", "steps", "values")), strict=True)
    assert [*rows] == [("val", 3.0, 0.9), ("loss", 7.0, 0.5), ("acc", 1.0, 1.0)]
