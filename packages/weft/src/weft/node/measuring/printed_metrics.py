"""Metrics in what a program prints: `name=value`, `name: value`, and both in JSON and Python.

What is printed is not to be trusted: reading takes time in proportion to its length, and of long
lines, of lines with many values and of many lines at once the rest is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from itertools import islice

from weft.node.ranks.conversation import MessageBucket

LONGEST_LINE, MOST_OF_LINE = 4096, 64  # characters, values
STEPS = ("step", "global_step", "iteration", "iter", "epoch")  # the first of them in a line counts
_BREAK = re.compile(rb"[\r\n]")
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_PAIR = re.compile(
    rb"""(?<![\w./@-])([a-z_][\w./@-]{0,63})["']?[ \t]{0,16}[=:][ \t]{0,16}["']?"""
    rb"([-+]?(?:(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:e[-+]?\d{1,3})?|nan|inf(?:inity)?))"
    rb"(?!\w|[.:]\d)",
    re.IGNORECASE,
)

Row = tuple[str, float, float]


class PrintedMetrics:
    """Values of the metrics that a job file names by `patterns`, in the output of one process."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._named = re.compile("|".join(map(translate, patterns))) if patterns else None
        self._budget = MessageBucket()
        self._rest = b""

    def read(self, chunk: bytes) -> list[Row]:
        """Name, step and value of each in the lines that end with this; a step of -1 is none."""
        if self._named is None:
            return []
        *lines, rest = _BREAK.split(self._rest + chunk)
        self._rest = rest[: LONGEST_LINE + 1]
        return [row for line in lines if len(line) <= LONGEST_LINE for row in self._rows(line)]

    def _rows(self, line: bytes) -> Iterator[Row]:
        pairs = islice(_PAIR.findall(_COLOUR.sub(b"", line)), MOST_OF_LINE)
        values = {name.decode(): float(value) for name, value in pairs}
        steps = {name.lower(): value for name, value in values.items() if name.lower() in STEPS}
        step = next((steps[name] for name in STEPS if name in steps), -1.0)
        assert self._named is not None
        rows = [
            (name, step, value)
            for name, value in values.items()
            if name.lower() not in STEPS and self._named.match(name)
        ]
        if rows and self._budget.allows():
            yield from rows
