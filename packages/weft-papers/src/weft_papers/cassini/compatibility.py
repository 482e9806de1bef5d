"""Compatibility of jobs that share a network link, and the rotations that make them compatible.

The score of a link is 1 less the part of its capacity, over the circle, by which demand exceeds it
(CASSINI, NSDI 2024, section 3): 1 where no job ever waits for another, below 0 where several want
all of it all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft_papers.cassini.circles import GRID_S, Circle, count_samples, measure_circle

EXACT = 2_000_000  # cells that are tried out one by one; beyond it jobs are turned in turn
STARTS = 4
PASSES = 8
GOLDEN = 0.6180339887498949
CHANCES = 24
DIGITS = 9


@frozen
class LinkFit:
    """The best turn of jobs on one link.

    `score` is with `shifts_s`, by which each job begins later; `unshifted` is without, where all
    begin together, and `by_chance` the mean where they begin anywhere.
    """

    score: float
    shifts_s: tuple[float, ...]
    unshifted: float
    by_chance: float


@lru_cache(maxsize=1 << 14)
def fit_link(circles: tuple[Circle, ...], capacity: float, samples: int = 0) -> LinkFit:
    """Turn jobs so that they exceed the capacity (Gbit/s) as little as possible; the first stays.

    `samples` points of the circle are compared, 0 for as many as the periods need. Up to three
    jobs are tried in every position, more in turn from several beginnings. Of equal turns the
    smallest is taken.
    """
    link = _Link.of(circles, capacity, samples)
    turns = link.try_all() if link.is_small() else link.take_turns()
    return LinkFit(
        link.score(turns),
        tuple(
            turn * link.step_s % circle.period_s
            for turn, circle in zip(turns, circles, strict=True)
        ),
        link.score([0] * len(circles)),
        link.score_by_chance(),
    )


def score_link(
    circles: Sequence[Circle], shifts_s: Sequence[float], capacity: float, samples: int = 0
) -> float:
    """The score of a link whose jobs begin `shifts_s` later."""
    times, _ = _times(circles, samples)
    pairs = zip(circles, shifts_s, strict=True)
    demand = sum((circle.demand(times - shift) for circle, shift in pairs), np.zeros(len(times)))
    return _score(demand, capacity)


@frozen
class _Link:
    """Demands on a circle, by job and sample; `turned[j][d]` is job j turned by d samples."""

    demands: Floats
    turned: tuple[Floats, ...]
    capacity: float
    step_s: float

    @classmethod
    def of(cls, circles: Sequence[Circle], capacity: float, samples: int) -> _Link:
        times, step = _times(circles, samples)
        demands = np.array([circle.demand(times) for circle in circles])
        turned = []
        for circle, row in zip(circles, demands, strict=True):
            count = max(int(np.ceil(circle.period_s / step - 1e-6)), 1)
            places = np.arange(len(times))[None, :] - np.arange(count)[:, None]
            turned.append(row[places % len(times)])
        return cls(demands, tuple(turned), capacity, step)

    def is_small(self) -> bool:
        """Return true if every position of every job but the first can be tried."""
        free = [len(rows) for rows in self.turned[1:]]
        return len(free) <= 2 and int(np.prod(free)) * self.demands.shape[1] <= EXACT

    def score(self, turns: Sequence[int]) -> float:
        rows = [self.turned[j][d] for j, d in enumerate(turns)]
        return _score(np.sum(rows, axis=0), self.capacity)

    def score_by_chance(self) -> float:
        """The mean over all turns of two jobs, or over some of more jobs, evenly spread."""
        if len(self.turned) == 2:
            demand = self.demands[0] + self.turned[1]
        else:
            turns = [self._begin(start + 1) for start in range(CHANCES)]
            demand = np.array(
                [sum(self.turned[j][d] for j, d in enumerate(turn)) for turn in turns]
            )
        over = np.maximum(demand - self.capacity, 0.0).mean()
        return 1.0 - float(over) / self.capacity

    def try_all(self) -> list[int]:
        """The best of all positions of one or two jobs beside the first."""
        base = self.demands[0]
        if len(self.turned) == 1:
            return [0]
        if len(self.turned) == 2:
            return [0, self._place(1, base)[0]]
        best, least = [0, 0, 0], np.inf
        for d, row in enumerate(self.turned[1]):
            last, excess = self._place(2, base + row)
            if excess < least:
                best, least = [0, d, last], excess
            if least == 0.0:
                break
        return best

    def take_turns(self) -> list[int]:
        """Turn one job at a time to where it hinders no other, until nothing improves."""
        best, least = [0] * len(self.turned), np.inf
        for start in range(STARTS):
            turns, excess = self._descend(self._begin(start))
            if excess < least:
                best, least = turns, excess
            if least == 0.0:
                break
        return best

    def _begin(self, start: int) -> list[int]:
        """Return starting positions: one after the other where they fit, or spread out."""
        if start:
            return [
                int(start * GOLDEN * (j + GOLDEN) ** 2 % 1.0 * len(rows)) if j else 0
                for j, rows in enumerate(self.turned)
            ]
        turns, base = [0], self.demands[0]
        for j in range(1, len(self.turned)):
            turns.append(self._place(j, base)[0])
            base = base + self.turned[j][turns[-1]]
        return turns

    def _descend(self, turns: list[int]) -> tuple[list[int], float]:
        total = np.sum([self.turned[j][d] for j, d in enumerate(turns)], axis=0)
        least = _excess(total, self.capacity)
        for _ in range(PASSES):
            before = least
            for j in range(1, len(turns)):
                others = total - self.turned[j][turns[j]]
                turn, excess = self._place(j, others)
                if excess < least:
                    turns[j], least = turn, excess
                    total = others + self.turned[j][turn]
            if least == before or least == 0.0:
                break
        return turns, least

    def _place(self, job: int, others: Floats) -> tuple[int, float]:
        """The smallest of the best turns of one job beside the others, and what is in excess."""
        over = np.maximum(self.turned[job] + (others - self.capacity), 0.0).sum(axis=1)
        over = np.round(over, DIGITS)
        turn = int(np.argmin(over))
        return turn, float(over[turn])


def _times(circles: Sequence[Circle], samples: int) -> tuple[Floats, float]:
    periods = [circle.period_s for circle in circles]
    perimeter = measure_circle(periods, GRID_S)
    count = samples or count_samples(periods, perimeter)
    step = perimeter / count
    times: Floats = step * np.arange(count, dtype=float)
    return times, step


def _excess(demand: Floats, capacity: float) -> float:
    return float(np.round(np.maximum(demand - capacity, 0.0).sum(), DIGITS))


def _score(demand: Floats, capacity: float) -> float:
    return 1.0 - _excess(demand, capacity) / (len(demand) * capacity)


# ---- Jobs and the links they share, as a graph: one time shift a job out of those of its links
#
# Links that carry two jobs or more are joined to their jobs. Where the graph has no loop, each
# job is reached in one way from another, and all links can have their jobs turned against each
# other as was found best (CASSINI, NSDI 2024, section 4).


J = TypeVar("J", bound=Hashable)
L = TypeVar("L", bound=Hashable)


def merge_links(
    crossed: Mapping[J, Collection[L]], capacity: Mapping[L, float]
) -> dict[L, tuple[J, ...]]:
    """The links that matter, with the jobs that share each, in the order of `crossed`.

    A link is left out if another carries all of its jobs and has no more room: jobs that get on
    there get on here, and two links with the same jobs would be a loop of no meaning.
    """
    jobs: dict[L, list[J]] = {}
    for job, links in crossed.items():
        for link in links:
            jobs.setdefault(link, []).append(job)
    shared = {link: tuple(dict.fromkeys(on)) for link, on in jobs.items()}
    shared = {link: on for link, on in shared.items() if len(on) > 1}
    # Of one set of jobs the narrowest link; then those inside another's set go, largest sets first.
    narrowest: dict[frozenset[J], L] = {}
    for link, on in shared.items():
        known = narrowest.setdefault(frozenset(on), link)
        if capacity[link] < capacity[known]:
            narrowest[frozenset(on)] = link
    kept: list[tuple[frozenset[J], float, L]] = []
    for on_it, link in sorted(narrowest.items(), key=lambda entry: -len(entry[0])):
        if not any(on_it < larger and room <= capacity[link] for larger, room, _ in kept):
            kept.append((on_it, capacity[link], link))
    chosen = {link for _, _, link in kept}
    return {link: on for link, on in shared.items() if link in chosen}


def has_loop(shared: Mapping[L, Sequence[J]]) -> bool:
    """Return true if some job is reached from another in two ways."""
    parent: dict[J, J] = {}
    for jobs in shared.values():
        first, *others = jobs
        for job in others:
            a, b = _root(parent, first), _root(parent, job)
            if a == b:
                return True
            parent[b] = a
    return False


def find_groups(shared: Mapping[L, Sequence[J]]) -> list[list[L]]:
    """Links that hang together by the jobs that cross them."""
    parent: dict[J, J] = {}
    for jobs in shared.values():
        for job in jobs[1:]:
            parent[_root(parent, job)] = _root(parent, jobs[0])
    groups: dict[J, list[L]] = {}
    for link, jobs in shared.items():
        groups.setdefault(_root(parent, jobs[0]), []).append(link)
    return list(groups.values())


def unite_shifts(
    periods: Mapping[J, float],
    shifts: Mapping[L, Mapping[J, float]],
    roots: Mapping[J, float] | None = None,
) -> dict[J, float]:
    """One shift for every job of `periods` from those on each link; the graph has no loop.

    A job that shares nothing is not shifted. Of those that hang together the first stays at 0, or
    the first that is named in `roots` where that says.
    """
    links_of: dict[J, list[L]] = {}
    for link, on_it in shifts.items():
        for job in on_it:
            links_of.setdefault(job, []).append(link)
    united: dict[J, float] = {}
    for root, first in _beginnings(periods, roots or {}):
        if root in united:
            continue
        united[root] = first % periods[root]
        queue = [root]
        for job in queue:  # breadth first: grows as it is read
            for link in links_of.get(job, ()):
                for other, shift in shifts[link].items():
                    if other not in united:
                        moved = united[job] - shifts[link][job] + shift
                        united[other] = moved % periods[other]
                        queue.append(other)
    return united


def _beginnings(periods: Mapping[J, float], roots: Mapping[J, float]) -> Iterator[tuple[J, float]]:
    yield from ((job, roots[job]) for job in periods if job in roots)
    yield from ((job, 0.0) for job in periods)


def _root(parent: dict[J, J], job: J) -> J:
    while (above := parent.get(job, job)) != job:
        parent[job] = parent.get(above, above)
        job = above
    return job
