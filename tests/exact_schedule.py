"""The best schedules of a few jobs, found by trying all that could be best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import inf, isinf

from weft.bounds.average import BoundedJob

Held = list[tuple[float, float, str, float]]  # begin, end, kind and GPUs of what is placed


def best_without_stops(jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> float:
    """The least sum of completion times minus submissions, where a job runs once and as one size.

    Branch and bound over the orders in which jobs take the earliest place that is left: one of
    them gives a best schedule.
    """
    shortest = [min(seconds for _, _, seconds in job.options) for job in jobs]
    best = inf

    def place(left: frozenset[int], held: Held, flow: float) -> None:
        nonlocal best
        if flow + sum(shortest[i] for i in left) >= best:
            return
        if not left:
            best = flow
            return
        choices = []
        for i in left:
            for kind, size, seconds in jobs[i].options:
                if size <= gpus[kind]:
                    start = _earliest(held, jobs[i].submitted, seconds, kind, gpus[kind] - size)
                    choices.append((start + seconds - jobs[i].submitted, i, start, kind, size))
        for took, i, start, kind, size in sorted(choices):
            end = jobs[i].submitted + took
            place(left - {i}, [*held, (start, end, kind, size)], flow + took)

    place(frozenset(range(len(jobs))), [], 0.0)
    return best


def _earliest(held: Held, since: float, seconds: float, kind: str, room: float) -> float:
    """The first time from which at most `room` GPUs of a kind are held for that long."""
    same = [(begin, end, size) for begin, end, of, size in held if of == kind]
    for start in sorted({since, *(end for _, end, _ in same if end > since)}):
        until = start + seconds
        busy = {start, *(begin for begin, _, _ in same if start < begin < until)}
        if all(sum(g for b, e, g in same if b <= at < e) <= room for at in busy):
            return start
    raise AssertionError("after the last end all is free")


def best_with_stops(jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> float:
    """The same where jobs may stop, move and change their size at each whole second, for free."""
    horizon = max(job.submitted for job in jobs) + sum(
        max(seconds for _, _, seconds in job.options) for job in jobs
    )

    @cache
    def least(at: int, left: tuple[Fraction, ...]) -> float:
        """Of the flow from here, by the parts of jobs that are left."""
        if not any(left):
            return 0.0
        if at > horizon:
            return inf
        here = [i for i, part in enumerate(left) if part and jobs[i].submitted <= at]
        best = inf
        for chosen in _side_by_side(jobs, here, dict(gpus)):
            after, flow = list(left), 0.0
            for i in here:
                part = Fraction(1, int(chosen[i])) if i in chosen else Fraction(0)
                flow += float(left[i] / part) if 0 < left[i] <= part else 1.0
                after[i] = max(left[i] - part, Fraction(0))
            if here and not chosen:
                continue
            best = min(best, flow + least(at + 1, tuple(after)))
        return best

    flow = least(0, (Fraction(1),) * len(jobs))
    assert not isinf(flow)
    return flow


def _side_by_side(
    jobs: Sequence[BoundedJob], here: Sequence[int], free: dict[str, float]
) -> Iterator[dict[int, float]]:
    """Every choice of jobs and sizes that fit together, as seconds of the whole job."""
    if not here:
        yield {}
        return
    first, *rest = here
    for kind, size, seconds in jobs[first].options:
        if size <= free[kind]:
            for others in _side_by_side(jobs, rest, {**free, kind: free[kind] - size}):
                yield {first: seconds, **others}
    yield from _side_by_side(jobs, rest, free)
