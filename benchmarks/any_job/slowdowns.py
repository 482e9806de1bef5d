"""How much slower each job was beside others than alone, by what it printed.

A job that printed nothing for a while was not slow but asleep: that is waiting, and it counts in
its completion. What is slow is a job that steps, at less than its speed alone.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.any_job.kinds import read_steps

PROMISE = 1.3
SETTLED_S = 1.0  # after the first step, before speeds are compared
WINDOW_S = 1.0
ASLEEP_S = 1.0  # without a step, beyond the time of ten


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Of one job: median and mean while it stepped, seconds beyond the promise, seconds asleep."""

    median: float
    mean: float
    broken_s: float
    asleep_s: float


def speed_alone(text: str) -> float:
    """Steps a second once it is under way; the median, for a machine is never quite still."""
    speeds = [steps / seconds for seconds, steps in windows(text, 0.0)[0]]
    return statistics.median(speeds) if speeds else 0.0


def slowdown(text: str, alone: float) -> Slowdown | None:
    """Beside others; None for a job too short to tell."""
    if not alone:
        return None
    awake, asleep = windows(text, 10.0 / alone)
    if not awake:
        return None
    ratios = [alone * seconds / max(steps, 1e-9) for seconds, steps in awake]
    broken = sum(
        seconds for (seconds, _), ratio in zip(awake, ratios, strict=True) if ratio > PROMISE
    )
    time_s, steps = sum(window[0] for window in awake), sum(window[1] for window in awake)
    return Slowdown(statistics.median(ratios), alone * time_s / steps, broken, asleep)


def windows(text: str, ten_steps_s: float) -> tuple[list[tuple[float, float]], float]:
    """Seconds and steps of stretches of about a second, and seconds without any step."""
    points = read_steps(text)
    settled = [point for point in points if point[0] >= points[0][0] + SETTLED_S] if points else []
    spans, asleep, seconds, steps = list[tuple[float, float]](), 0.0, 0.0, 0.0
    for (began, before), (ended, after) in pairwise(settled):
        if ended - began > ASLEEP_S + ten_steps_s:
            asleep += ended - began
            continue
        seconds, steps = seconds + ended - began, steps + after - before
        if seconds >= WINDOW_S and steps:
            spans.append((seconds, steps))
            seconds = steps = 0.0
    return spans, asleep
