"""Measurements of a running attempt: steps by time, device memory, host.

An agent measures every attempt, whatever its program does: steps by the watcher inside its Python
processes, the rest from outside. The last minutes are kept beside the attempt, not in the log;
what is worth remembering is reported (`weft.core.events.report`). Times are Unix times of the
node.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Flag, auto
from math import inf
from typing import Any

from weft.frozen import frozen

MOST_SAMPLES = 2_000
MOST_STEPS = 1e15
MOST_PER_S = 1e7  # no program counts steps faster
MOST_GB = 1e6
UNITS = ("", "step", "graph", "batch", "bar")
STALLED = 3.0  # times the usual gap between samples without one: the job stands still


class Sees(Flag):
    """The measurements that an engine can take of jobs that report nothing."""

    NOTHING = 0
    STEPS = auto()  # steps and when they were done, by the watcher in Python processes
    DEVICE = auto()  # device memory and utilisation of each job
    HOST = auto()  # CPU time and bytes read and written
    WAITS = auto()  # allocations of device memory that wait where there is none left


@frozen
class MemoryWait:
    """An attempt that waits for `gb` of a device's memory since a Unix time.

    `held` is what each job holds of the device. `away` says that this one gave its memory to the
    others meanwhile. `missing_gb` must become free first, for it and those that are served before
    it; None where that is not known. `others` are those of its other processes, on other devices.
    """

    gb: float
    since: float
    held: Mapping[str, float]
    away: bool = False
    missing_gb: float | None = None
    others: tuple[MemoryWait, ...] = ()


@frozen
class MeasuredAttempt:
    """One attempt in its last minutes.

    - `at`: when its agent last looked
    - `samples`: `(at, steps)`, oldest first: the steps done by then, and the last of them just then
    - `unit`: what a step is: `step` of an optimizer, replay of a CUDA `graph`, `batch` of Keras,
      iteration of a progress `bar`; empty before any was counted
    - `total_steps`: of the whole training, None where nothing tells
    - `data_part`: part of the time in which training waited for data, None where nothing tells
    - `held_gb`, `peak_gb`: memory of the device where it holds most, now and the most ever; None
      without a device or where the driver does not tell
    - `sm`: part of the device's time in which a kernel of it ran, over the last second; None where
      the driver does not tell, as under MPS
    - `waits`: the memory that it waits for, None where it does not
    - `unguarded`: whether it holds memory by calls that cannot wait: nothing is loaded into a
      program that is linked statically, or drops what was preloaded
    - `cpus`: CPU cores that were busy for it, `read_mb_s` and `write_mb_s` what it moved from and
      to disks, over the last second
    """

    at: float = 0.0
    samples: tuple[tuple[float, float], ...] = ()
    unit: str = ""
    total_steps: float | None = None
    data_part: float | None = None
    held_gb: float | None = None
    peak_gb: float | None = None
    sm: float | None = None
    cpus: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None
    waits: MemoryWait | None = None
    unguarded: bool = False

    @property
    def steps(self) -> float | None:
        """Steps done so far; None before any was counted."""
        return self.samples[-1][1] if self.samples else None

    def rate(self, since: float, until: float) -> float | None:
        """Steps per second between two times; None where samples do not tell.

        It takes two samples in between. A job that then stands still is counted up to `until`, or
        to the last look at it; so a neighbour that starves it shows.
        """
        first = bisect_left(self.samples, (since, -inf))
        last = bisect_right(self.samples, (until, inf)) - 1
        if last <= first:
            return None
        (began, before), (ended, after) = self.samples[first], self.samples[last]
        usual = (ended - began) / (last - first)
        seen = min(until, self.at)
        if seen - ended > STALLED * usual:
            ended = seen
        return (after - before) / (ended - began) if ended > began else None

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> MeasuredAttempt:
        """From what an agent wrote, or a job in its place; ValueError names what cannot be right.

        Names that are not known are skipped.
        """
        kept: dict[str, Any] = {}
        for name in _NUMBERS & values.keys():
            if values[name] is not None:
                kept[name] = _check(name, values[name], *_BOUNDS.get(name, (0.0, MOST_STEPS)))
        unit = values.get("unit", "")
        if unit not in UNITS:
            raise ValueError(f"unit is {unit!r:.40}, expected one of {', '.join(UNITS[1:])}")
        return cls(unit=str(unit), samples=_read_samples(values.get("samples", ())), **kept)


NOT_MEASURED = MeasuredAttempt()
_NUMBERS = {f.name for f in fields(MeasuredAttempt)} - {"samples", "unit", "waits", "unguarded"}
_BOUNDS = {
    "data_part": (0.0, 1.0),
    "sm": (0.0, 1.0),
    "cpus": (0.0, 1e5),
    "held_gb": (0.0, MOST_GB),
    "peak_gb": (0.0, MOST_GB),
    "read_mb_s": (0.0, 1e9),
    "write_mb_s": (0.0, 1e9),
}


def _read_samples(values: object) -> tuple[tuple[float, float], ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) > MOST_SAMPLES:
        raise ValueError(f"samples are {values!r:.40}, expected at most {MOST_SAMPLES} pairs")
    samples: list[tuple[float, float]] = []
    for pair in values:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise ValueError(f"a sample is {pair!r:.40}, expected a time and steps")
        at = _check("time of a sample", pair[0], 0.0, MOST_STEPS)
        steps = _check("steps of a sample", pair[1], 0.0, MOST_STEPS)
        if samples:
            before, done = samples[-1]
            if at <= before or not 0.0 <= steps - done <= 1.0 + MOST_PER_S * (at - before):
                raise ValueError(f"samples go from {samples[-1]} to {(at, steps)}")
        samples.append((at, steps))
    return tuple(samples)


def _check(name: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} is {value!r:.40}, expected a number")  # noqa: TRY004 - one kind
    if not least <= value <= most:  # no comparison with nan is true
        raise ValueError(f"{name} is {value!r:.40}, expected {least:g} to {most:g}")
    return float(value)
