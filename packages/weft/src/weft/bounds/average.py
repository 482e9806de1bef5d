"""Certified lower bounds on the average completion time of a workload.

Each holds for every schedule in which no two jobs use the same part of a GPU at once: with any
knowledge, preemption, migration and change of size, all free. docs/explanation/bounds.md has the
proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from weft.bounds.machine import BusyDual, Goal, busy_dual, srpt_flow
from weft.bounds.market import Choices, Market
from weft.frozen import frozen

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Size = Callable[[Floats, int], Floats]
Option = tuple[str, float, float]  # GPU kind, GPUs, seconds for the whole job
ROUNDS = 4  # in which jobs that nothing delays are left out of the prices
CLOSER = 4  # prices that are looked at with the speed of each job
SAFE = 1.0 - 1e-9  # of each bound: more than rounding can add


@frozen
class BoundedJob:
    """A job as bounds see it.

    `options` are the ways to run it. Its progress is in proportion to time in each, and it may
    change between them at any time; `seconds` are for the whole job, and GPUs may be parts of one.
    `length` is what its slowdown is counted by. It makes no progress in the first `start` seconds
    with GPUs.
    """

    submitted: float
    options: tuple[Option, ...]
    length: float = 0.0
    start: float = 0.0

    @property
    def shortest(self) -> float:
        """Seconds in which it can be done."""
        return min(seconds for _, _, seconds in self.options)

    @property
    def longest(self) -> float:
        """Seconds that it can hold GPUs and progress all the time."""
        return max(seconds for _, _, seconds in self.options)


@frozen
class AverageBound:
    """Seconds that the average completion time cannot be below, by each argument alone.

    `alone`: every job by itself. `srpt`: one machine as fast as the cluster, shortest remaining
    first. `busy`: mean busy times on that machine, plus half of each length. `market`: prices at
    which each job chooses its size. `best` is the largest, group by group of jobs that have no GPU
    kind in common with others.
    """

    alone: float
    srpt: float
    busy: float
    market: float
    best: float


def bound_average(jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> AverageBound:
    """Lower bounds for one or more jobs, on that many GPUs of each kind."""
    sums = np.zeros(5)
    for group, kinds in _groups(jobs):
        machine = OneMachine(group, {kind: gpus[kind] for kind in kinds})
        starts = sum(job.start for job in group)
        alone, flow = float(machine.lengths.sum()), machine.least_flow()
        busy = machine.least_sum(machine.lengths, machine.ones)
        market = machine.least_market(machine.lengths)
        sums += *np.array([alone, flow, busy, market]) + starts, starts
        sums[4] += max(alone, flow, busy, market)
    return AverageBound(*(SAFE * sums / len(jobs)).tolist())


def bound_wait(jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> float:
    """Seconds that jobs wait at least on average: without GPUs, from submission to their end."""
    least, jobs = 0.0, [replace(job, start=0.0) for job in jobs]  # a start holds GPUs, no wait
    for group, kinds in _groups(jobs):
        machine = OneMachine(group, {kind: gpus[kind] for kind in kinds})
        longest = np.array([job.longest for job in machine.jobs])
        busy = machine.least_sum(longest, machine.ones)
        took = max(machine.least_flow(), busy, machine.least_market(longest))
        least += max(SAFE * took - float(longest.sum()), 0.0)
    return least / len(jobs)


def bound_slowdown(jobs: Sequence[BoundedJob], gpus: Mapping[str, int], floor_s: float) -> float:
    """The least average of completion times over lengths, at least 1 and `floor_s` each."""
    least = 0.0
    for group, kinds in _groups(jobs):
        machine = OneMachine(group, {kind: gpus[kind] for kind in kinds})
        length = np.maximum([job.length for job in machine.jobs], floor_s)
        start = np.array([job.start for job in machine.jobs])
        slowed = machine.least_sum(np.maximum(length - start, machine.lengths), 1.0 / length)
        slowed += float((start / length).sum())
        least += max(SAFE * slowed, float(len(group)))
    return least / len(jobs)


def _groups(jobs: Sequence[BoundedJob]) -> list[tuple[list[BoundedJob], tuple[str, ...]]]:
    """Jobs that could compete, directly or through others, and the kinds that they could use."""
    groups: list[tuple[list[BoundedJob], set[str]]] = []
    by_kinds: dict[frozenset[str], list[BoundedJob]] = {}
    for job in jobs:
        by_kinds.setdefault(frozenset(kind for kind, _, _ in job.options), []).append(job)
    for kinds, some in by_kinds.items():
        joined, others = (list(some), set(kinds)), []
        for group in groups:
            if group[1] & kinds:
                joined = (group[0] + joined[0], group[1] | joined[1])
            else:
                others.append(group)
        groups = [*others, joined]
    return [(group, tuple(sorted(kinds))) for group, kinds in groups]


class OneMachine:
    """Jobs in order of submission on a machine as fast as a cluster, counted in several ways."""

    def __init__(self, jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> None:
        self.jobs = sorted(jobs, key=lambda job: job.submitted + job.start)
        self.released = np.array([job.submitted + job.start for job in self.jobs])
        self.released -= self.released[0]
        self.lengths = np.array([job.shortest for job in self.jobs])
        self.ones = np.ones(len(self.jobs))
        self._options = options = OptionTable(self.jobs, gpus)
        self._works = [options.work(*way) for way in product(options.prices(), options.sizes())]

    def least_flow(self) -> float:
        """The least sum of times from submission to end, shortest remaining work first."""
        return max(srpt_flow(self.released, work) for work in self._works)

    def least_sum(self, least: Floats, weight: Floats) -> float:
        """The least weighted sum of times from release to end, each of at least `least`."""
        goal = Goal(weight, least)
        duals = [dual for work in self._works for dual in self._duals(work, goal)]
        duals.sort(key=lambda dual: -dual.least(goal, self.lengths))
        return max(dual.least_at_own_speed(goal, self.lengths) for dual in duals[:CLOSER])

    def least_market(self, least: Floats) -> float:
        """The least sum of these times where each job pays for the sizes that it chooses."""
        dual = next(self._duals(self._works[0], Goal(self.ones, least)))
        some = self.lengths > 0.0
        others = float(least[~some].sum())
        if not some.any():
            return others
        choices = self._options.choices(self.lengths, some)
        market = Market(self.released[some], self.lengths[some], least[some], choices, dual)
        return others + market.least_sum()

    def _duals(self, work: Floats, goal: Goal) -> Iterator[BusyDual]:
        """Prices of all jobs, and of those alone that these prices delay, a few times over."""
        some = work > 0.0
        for _ in range(ROUNDS):
            dual = busy_dual(self.released, work, goal.weight, some)
            yield dual
            delayed = some & (dual.paid + self.lengths / 2.0 - self.released > goal.least)
            if not delayed.any() or delayed.sum() == some.sum():
                return
            some = delayed


class OptionTable:
    """All options of jobs as columns: the row of its job, the kind, GPUs and seconds of each."""

    def __init__(self, jobs: Sequence[BoundedJob], gpus: Mapping[str, int]) -> None:
        rows = [(i, *option) for i, job in enumerate(jobs) for option in job.options]
        row, kind, held, seconds = zip(*rows, strict=True)
        self._kinds = list(gpus)
        self._total = np.array([gpus[kind] for kind in self._kinds], dtype=float)
        self._row = np.array(row)
        self._first = np.flatnonzero(np.diff(self._row, prepend=-1))
        self._kind = np.array([self._kinds.index(name) for name in kind])
        self._held, self._seconds = np.array(held, dtype=float), np.array(seconds, dtype=float)

    def prices(self) -> list[Floats]:
        """Parts of the machine's speed that are all GPUs of each kind; each list sums to 1.

        By GPUs alone, and by GPUs times how fast jobs are there against where they are fastest.
        """
        equal = self._total / self._total.sum()
        if len(self._kinds) == 1:
            return [equal]
        cost = self._held * self._seconds
        least = np.minimum.reduceat(cost, self._first)[self._row]
        speed = np.bincount(self._kind, least / np.maximum(cost, 1e-300), len(self._kinds))
        often = np.maximum(np.bincount(self._kind, minlength=len(self._kinds)), 1)
        fast = equal * speed / often
        return [equal, fast / fast.sum()] if fast.sum() > 0.0 else [equal]

    def choices(self, shortest: Floats, some: Bools) -> Choices:
        """The choices of `some` jobs; those of one size take of gangs' resources as well."""
        sizes = [part_of, *(GANG_SIZES[:2] if self._whole else ())]
        count = np.bincount(self._row, minlength=len(some))
        takes = np.zeros((len(self._row), len(self._kinds), len(sizes)))
        for kind, total in enumerate(self._total.tolist()):
            at = np.flatnonzero(self._kind == kind)
            for number, size in enumerate(sizes):
                gangs = at if number == 0 else at[count[self._row[at]] == 1]
                takes[gangs, kind, number] = size(self._held[gangs], int(total))
        speed = shortest[self._row] / np.maximum(self._seconds, 1e-300)
        kept = some[self._row]
        for row in np.flatnonzero(some & (count > 1)).tolist():
            at = self._first[row] + np.arange(count[row])
            kept[at] = envelope(self._kind[at], takes[at, self._kind[at], 0], speed[at])
        number_of = np.cumsum(some) - 1
        return Choices(takes[kept].reshape(kept.sum(), -1), speed[kept], number_of[self._row[kept]])

    @property
    def _whole(self) -> bool:
        """True if there are gangs, and whole GPUs alone."""
        held = self._held
        return bool((held == np.rint(held)).all()) and held.max(initial=0.0) > 1.0

    def sizes(self) -> list[Size]:
        """Ways to count a gang: sums are at most 1 where gangs fit side by side."""
        return [part_of, *(GANG_SIZES if self._whole else ())]

    def work(self, price: Floats, size: Size) -> Floats:
        """Seconds of each job on the machine, at the cheapest of its options."""
        part = np.zeros(len(self._row))
        for kind, total in enumerate(self._total.tolist()):
            at = self._kind == kind
            part[at] = size(self._held[at], int(total))
        return np.minimum.reduceat(price[self._kind] * part * self._seconds, self._first)


def envelope(kind: NDArray[np.intp], part: Floats, speed: Floats) -> Bools:
    """Mark the choices on each kind that no mix of others beats in speed for the same part."""
    kept = np.zeros(len(kind), dtype=bool)
    for each in np.unique(kind).tolist():
        hull: list[int] = []
        for i in sorted(np.flatnonzero(kind == each).tolist(), key=lambda i: (part[i], -speed[i])):
            if hull and speed[i] <= speed[hull[-1]]:
                continue
            while hull:
                x, y = (part[hull[-2]], speed[hull[-2]]) if len(hull) > 1 else (0.0, 0.0)
                if (speed[hull[-1]] - y) * (part[i] - x) > (speed[i] - y) * (part[hull[-1]] - x):
                    break
                hull.pop()
            hull.append(i)
        kept[hull] = True
    return kept


def part_of(held: Floats, total: int) -> Floats:
    """The part of all GPUs."""
    return held / total


def at_most(count: int) -> Size:
    """Gangs by how many of them fit at most: above 1/(`count` + 1) of all, only `count` do.

    The dual feasible function of Fekete and Schepers (2001), for whole GPUs.
    """

    def size(held: Floats, total: int) -> Floats:
        parts, rest = np.divmod((count + 1) * held, total)
        return np.where(rest == 0.0, held / total, parts / count)

    return size


def halfway(first: Size, second: Size) -> Size:
    """The mean of two ways to count, which is a way as well."""
    return lambda held, total: (first(held, total) + second(held, total)) / 2.0


GANG_SIZES = (at_most(1), at_most(2), halfway(part_of, at_most(1)))
