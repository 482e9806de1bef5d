"""Metrics of a job: what its program measured of itself, in bounded space, as a fold of the log.

Of each metric there are the last, the least and the most value, and a curve. A curve that is full
loses every other point, and takes half as many from then on: it covers the whole run evenly.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import islice
from math import isfinite, isnan, nan

from weft.core.events.event import Measured
from weft.frozen import frozen

MOST_NAMES, LONGEST_NAME = 64, 64
MOST_POINTS = 1_000  # of one event
MOST_STEP, MOST_VALUE = 1e15, 1e300
CURVE, ALL_CURVES = 240, 1_920  # points of a metric, and of all metrics of a job
POINT = struct.Struct("<ddd")
WIDTH = POINT.size // 3 * 4  # characters of a point: three bytes are four of them

Point = tuple[float, float | None, float]  # step, value, time


def sound_points(event: Measured) -> tuple[Measured, str]:
    """The event with the points that can be right, and what is wrong with the rest.

    A value that is no finite number is None: a loss that is no number any more is news.
    """
    wrong = "" if isfinite(event.noted_at) else "metrics without a time"
    if not len(event.names) == len(event.steps) == len(event.values):
        wrong = "names, steps and values of metrics differ in number"
    elif len(event.names) > MOST_POINTS:
        wrong = f"{len(event.names)} values of metrics at once, expected at most {MOST_POINTS}"
    sound: list[tuple[str, float, float | None]] = []
    for name, step, value in islice(zip(event.names, event.steps, event.values), MOST_POINTS):  # noqa: B905
        if _is_sound(name, step, value):
            sound.append((name, float(step), _finite(value)))
        else:
            at = f"{str(step)[:20]} is {str(value)[:20]}"
            wrong = wrong or f"metric {str(name)[:LONGEST_NAME]!r} at step {at}"
    noted_at = event.noted_at if isfinite(event.noted_at) else 0.0
    names, steps, values = zip(*sound, strict=True) if sound else ((), (), ())
    return Measured(event.job, event.attempt, noted_at, names, steps, values), wrong


def _is_sound(name: object, step: object, value: object) -> bool:
    named = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
    placed = isinstance(step, (int, float)) and 0.0 <= step <= MOST_STEP
    return named and placed and (value is None or type(value) in (int, float))


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and abs(value) <= MOST_VALUE else None


@frozen
class Series:
    """One metric of a job.

    `count` values were heard; `step`, `value` and `at` are of the last one. `least` and `most` are
    None as long as none was a number, and `least_step` and `most_step` are where they were first.
    `points` are the curve, of which every `every`-th value is kept, and the last always; `attempt`
    is the one that the last came in.
    """

    count: int = 0
    step: float = 0.0
    value: float | None = None
    at: float = 0.0
    least: float | None = None
    least_step: float = 0.0
    most: float | None = None
    most_step: float = 0.0
    attempt: int = 0
    every: int = 1
    points: str = ""

    def add(self, step: float, value: float | None, at: float, room: int) -> Series:
        """Take in one more value; the curve has `room` for that many points."""
        points, every = self.points, self.every
        if self.count and (self.count - 1) % every:  # the last alone is there for being the last
            points = points[:-WIDTH]
        last = base64.b64encode(POINT.pack(step, nan if value is None else value, at)).decode()
        points += last
        while len(points) > room * WIDTH:
            odd = len(points) // WIDTH % 2
            points = "".join(points[i : i + WIDTH] for i in range(0, len(points), 2 * WIDTH))
            points += "" if odd else last
            every *= 2
        least, least_step, most, most_step = self.least, self.least_step, self.most, self.most_step
        if value is not None and (least is None or value < least):
            least, least_step = value, step
        if value is not None and (most is None or value > most):
            most, most_step = value, step
        extremes = (least, least_step, most, most_step)
        last_one = (self.count + 1, step, value, at)
        return Series(*last_one, *extremes, self.attempt, every, points)

    def start_attempt(self, attempt: int, step: float) -> Series:
        """Another attempt goes on at a step: what an earlier one did from there on is undone."""
        steps = [at for at, _, _ in self.curve()]
        kept = next((i for i, at in enumerate(steps) if at >= step), len(steps))
        if kept == len(steps):
            return replace(self, attempt=attempt)
        count = (kept - 1) * self.every + 1 if kept else 0
        return replace(self, attempt=attempt, count=count, points=self.points[: kept * WIDTH])

    def curve(self) -> list[Point]:
        """Step, value and time of the points that are kept, as they came."""
        data = base64.b64decode(self.points)
        return [(s, None if isnan(v) else v, at) for s, v, at in POINT.iter_unpack(data)]


NOTHING = Series()


@frozen
class JobMetrics:
    """All metrics of a job by name; the last came in `attempt`, and its agent `noted_at` it then.

    `left_out` counts values of names beyond the first `MOST_NAMES`.
    """

    attempt: int = 0
    noted_at: float = 0.0
    series: Mapping[str, Series] = field(default_factory=dict)
    left_out: int = 0

    def has(self, attempt: int, noted_at: float) -> bool:
        """True if what an agent said then is in here."""
        return (attempt, noted_at) <= (self.attempt, self.noted_at)

    def add(self, at: float, event: Measured) -> JobMetrics:
        """Take in the values of an event that was checked."""
        series, left_out = dict(self.series), self.left_out
        at = min(at, event.noted_at or at)
        for name, step, value in zip(event.names, event.steps, event.values, strict=True):
            known = series.get(name, NOTHING)
            if known is NOTHING and len(series) >= MOST_NAMES:
                left_out += 1
                continue
            if known.attempt != event.attempt:
                known = known.start_attempt(event.attempt, step)
            room = min(CURVE, ALL_CURVES // max(len(series), 1))
            series[name] = known.add(step, value, at, room)
        return JobMetrics(event.attempt, event.noted_at, series, left_out)


NO_METRICS = JobMetrics()
