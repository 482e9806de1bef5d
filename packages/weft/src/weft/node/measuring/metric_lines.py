"""Metrics of an attempt on their way into its log: a few lines per minute, however much is said.

The first lines are half a second apart, later ones up to ten seconds. What a program measures in
between is kept as far as there is room; then of each metric every other value is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from math import isfinite

from weft.base.messages import Metrics
from weft.node.attempt_log import Journal
from weft.wire.attempt import AttemptSpec

FIRST_S, LONGEST_S, PART = 0.5, 10.0, 0.01  # between two lines: that part of its time so far
ROOM = 200  # values of a line
MOST_NAMES, LONGEST_NAME = 64, 64
USER = "user."  # in reports, before what the script measures of its own

Value = tuple[float, float | None]


class MetricLines:
    """Values of the attempt's first rank; those without a step are counted by metric."""

    def __init__(self, spec: AttemptSpec, journal: Journal) -> None:
        self._journal = journal
        self._waiting: dict[str, list[Value]] = {}
        self._last: dict[str, Value] = {}
        self._by_message, self._by_report = set[str](), set[str]()
        self._began = self._written = time.monotonic()
        self._noted_at = 0.0
        self._none_here = spec.first_rank != 0

    def take(self, rank: int, message: Metrics) -> None:
        """Note what a rank or its watcher says."""
        rows = list(zip(message.names, message.steps, message.values, strict=False))
        self._by_message.update(name for name, _, _ in rows[:MOST_NAMES])
        self._add(rank, rows)

    def take_report(self, rank: int, values: Mapping[str, float]) -> None:
        """Note the loss in a report, and what a script that sends no metrics measures itself."""
        own = {name.removeprefix(USER): v for name, v in values.items() if name.startswith(USER)}
        if "loss" in values:
            own.setdefault("loss", values["loss"])
        steps = values.get("steps", -1.0)
        rows = [(name, steps, v) for name, v in own.items() if name not in self._by_message]
        self._by_report.update(name for name, _, _ in rows[:MOST_NAMES])
        self._add(rank, rows)

    def take_printed(self, rank: int, rows: Iterable[tuple[str, float, float]]) -> None:
        """Note what a rank printed, unless its program says the same to a library."""
        elsewhere = self._by_message | self._by_report
        self._add(rank, [row for row in rows if row[0] not in elsewhere])

    def poll(self) -> None:
        """Write what is there, if it is time to."""
        now = time.monotonic()
        apart = min(max((now - self._began) * PART, FIRST_S), LONGEST_S)
        if self._waiting and now - self._written >= apart:
            self.write()

    def write(self) -> None:
        if not self._waiting:
            return
        self._written = time.monotonic()
        self._noted_at = max(self._noted_at + 1e-3, time.time())
        rows = [(name, *value) for name, values in self._waiting.items() for value in values]
        names, steps, values = zip(*rows, strict=True)
        self._waiting = {}
        self._journal.write(
            "metrics", noted_at=self._noted_at, names=names, steps=steps, values=values
        )

    def _add(self, rank: int, rows: Iterable[tuple[str, float, float | None]]) -> None:
        if rank != 0 or self._none_here:
            return
        for name, step, value in rows:
            if name not in self._last and len(self._last) >= MOST_NAMES:
                continue
            if not (0 < len(name) <= LONGEST_NAME and name.isprintable() and isfinite(step)):
                continue
            before = self._last.get(name)
            at = step if step >= 0.0 else before[0] + 1.0 if before else 0.0
            point = (at, value if value is not None and isfinite(value) else None)
            if point != before:  # two of the libraries of a program may say the same
                self._last[name] = point
                self._waiting.setdefault(name, []).append(point)
        while sum(map(len, self._waiting.values())) > ROOM:
            for name, values in self._waiting.items():
                self._waiting[name] = values[::-2][::-1]  # the last stays
