"""The best schedules of a few jobs, found by trying all that could be best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import inf, isinf

from weft.bounds.average import BoundedJob

Held = list[tuple[float, float, str, float]]  # begin, end, kind and GPUs of what is placed
Goal = Callable[[BoundedJob, float, float], float]  # of a job, its wait and its whole time

SHORTEST = 2.0


def whole_time(job: BoundedJob, waited: float, took: float) -> float:
    """From submission to end."""
    return took


def wait(job: BoundedJob, waited: float, took: float) -> float:
    """What of that is without GPUs."""
    return waited


def slowdown(job: BoundedJob, waited: float, took: float) -> float:
    """The same over the length of the job, which counts as 2 s at least; 1 or more."""
    return max(took / max(job.length, SHORTEST), 1.0)


def best_without_stops(
    jobs: Sequence[BoundedJob], gpus: Mapping[str, int], goal: Goal = whole_time
) -> float:
    """The least sum of a goal that never falls in time, where a job runs once and as one size.

    Branch and bound over the orders in which jobs take the earliest place that is left: one of
    them gives a best schedule.
    """
    least = [min(goal(job, 0.0, seconds) for _, _, seconds in job.options) for job in jobs]
    best = inf

    def place(left: frozenset[int], held: Held, flow: float) -> None:
        nonlocal best
        if flow + sum(least[i] for i in left) >= best:
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
            cost = goal(jobs[i], start - jobs[i].submitted, took)
            place(left - {i}, [*held, (start, end, kind, size)], flow + cost)

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


def best_with_stops(
    jobs: Sequence[BoundedJob], gpus: Mapping[str, int], goal: Goal = whole_time
) -> float:
    """The same where jobs may stop, move and change their size at each whole second, for free."""
    horizon = max(job.submitted for job in jobs) + sum(job.longest for job in jobs)

    @cache
    def least(at: int, left: tuple[Fraction, ...], waited: tuple[int, ...]) -> float:
        """Of the goal from here, by the parts of jobs that are left and what they waited."""
        if not any(left):
            return 0.0
        if at > horizon:
            return inf
        here = [i for i, part in enumerate(left) if part and jobs[i].submitted <= at]
        best = inf
        for chosen in _side_by_side(jobs, here, dict(gpus)):
            if here and not chosen:
                continue
            after, since, cost = list(left), list(waited), 0.0
            for i in here:
                if i not in chosen:
                    since[i] += 1
                    continue
                part = Fraction(1, int(chosen[i]))
                if left[i] <= part:
                    took = at + float(left[i] / part) - jobs[i].submitted
                    cost += goal(jobs[i], float(waited[i]), took)
                after[i] = max(left[i] - part, Fraction(0))
            # What ended jobs waited makes no difference any more.
            kept = tuple(s if a else 0 for s, a in zip(since, after, strict=True))
            best = min(best, cost + least(at + 1, tuple(after), kept))
        return best

    flow = least(0, (Fraction(1),) * len(jobs), (0,) * len(jobs))
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
