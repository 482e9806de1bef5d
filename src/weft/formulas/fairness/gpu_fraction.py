"""GPU fraction: device time received over that of an uninterrupted run at full size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Points = Sequence[tuple[float, float]]  # (from when on, devices held), in order of time


def gpu_fraction(points: Points, asked: float, since: float, until: float) -> float:
    """Of the time from `since` to `until`; more devices than `asked` count for no more.

    1 where there is no time yet.
    """
    if until <= since or asked <= 0.0:
        return 1.0
    received = 0.0
    for i, (at, gpus) in enumerate(points):
        end = points[i + 1][0] if i + 1 < len(points) else until
        seconds = min(end, until) - max(at, since)
        if seconds > 0.0:
            received += seconds * min(gpus, asked)
    return received / (asked * (until - since))


def window_fractions(points: Points, asked: float, window: float, end: float) -> list[float]:
    """Of each window since the first point, the last one cut at `end`."""
    fractions, since = [], points[0][0]
    while since < end - 1e-6:
        until = min(since + window, end)
        fractions.append(gpu_fraction(points, asked, since, until))
        since = until
    return fractions


def add_point(
    points: Points, at: float, gpus: float, oldest: float
) -> tuple[tuple[float, float], ...]:
    """With one more change, without what ended before `oldest`."""
    kept: Iterable[tuple[float, float]] = points
    if not points or points[-1][1] != gpus:
        kept = (*(point for point in points if point[0] < at), (at, gpus))
    known = tuple(kept)
    first = max((i for i, (when, _) in enumerate(known) if when <= oldest), default=0)
    return known[first:]
