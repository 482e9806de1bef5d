"""What starts and restarts cost in a comparison, inferred from its rows.

A job that keeps one number of GPUs does the same work under every policy. If it is started once
by two policies, and takes a few seconds longer under one of them however long it is, a start costs
that much more there; if it is started again, each restart costs what it takes longer by. That holds
as far as nothing else differs: where times differ by more than such costs (kinds of GPUs, places,
neighbours), nothing can be said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from statistics import median

from weft.frozen import frozen

ENOUGH, ENOUGH_AGAIN = 5, 3  # jobs that are started once in both, and again in one
SLACK_S, SLACK = 1.0, 0.01
EPS = 1e-6
Rows = Sequence[tuple[float, float, float]]  # start, end and GPUs of what a job held


@frozen
class Inferred:
    """Seconds beyond those of the run `beside`, by run: of a start, and of each restart."""

    beside: str = ""
    starts: Mapping[str, float] = field(default_factory=dict)
    restarts: Mapping[str, float] = field(default_factory=dict)


def infer(runs: Mapping[str, Mapping[str, Rows]]) -> Inferred:
    """What can be said of finished jobs by run; nothing where too few can be compared."""
    times = {name: _times(jobs) for name, jobs in runs.items()}
    if len(times) < 2:
        return Inferred()
    once = {run: sum(starts == 1 for _, _, starts in own.values()) for run, own in times.items()}
    beside = max(once, key=lambda run: once[run])
    starts, restarts = {}, {}
    for run, own in times.items():
        offset = None if run == beside else _offset(own, times[beside])
        if offset is None:
            continue
        starts[run] = offset
        again = _again(own, times[beside], offset)
        if again is not None:
            restarts[run] = again
    return Inferred(beside, starts, restarts)


Time = tuple[float, float, int]  # GPUs, seconds on them, starts


def _times(jobs: Mapping[str, Rows]) -> dict[str, Time]:
    """Jobs that keep one number of GPUs, and wait between any two stretches."""
    times = {}
    for name, rows in jobs.items():
        held = sorted(rows)
        joined = any(after[0] <= before[1] + EPS for before, after in pairwise(held))
        if held and not joined and len({gpus for _, _, gpus in held}) == 1:
            times[name] = (held[0][2], sum(end - start for start, end, _ in held), len(held))
    return times


def _offset(own: Mapping[str, Time], other: Mapping[str, Time]) -> float | None:
    """By how many seconds jobs that are started once take longer; None if that is not a number."""
    pairs = [
        (mine[1], other[job][1])
        for job, mine in own.items()
        if job in other and mine[0] == other[job][0] and mine[2] == other[job][2] == 1
    ]
    return _centre([a - b for a, b in pairs], [b for _, b in pairs], ENOUGH)


def _again(own: Mapping[str, Time], other: Mapping[str, Time], offset: float) -> float | None:
    """Seconds of a restart."""
    pairs = [
        (mine, other[job][1])
        for job, mine in own.items()
        if job in other and mine[0] == other[job][0] and mine[2] > 1 and other[job][2] == 1
    ]
    costs = [(mine[1] - was - offset) / (mine[2] - 1) for mine, was in pairs]
    return _centre(costs, [was for _, was in pairs], ENOUGH_AGAIN)


def _centre(values: Sequence[float], lengths: Sequence[float], enough: int) -> float | None:
    """The median, if most are about that; None where they are too few or too far apart."""
    if len(values) < enough:
        return None
    centre = median(values)
    apart = median(abs(value - centre) for value in values)
    return centre if apart <= SLACK_S + SLACK * min(abs(centre), median(lengths)) else None
