"""Distributions of total length, conditioned on what a job has already executed.

Each group of jobs that a job belongs to is a weighted sample of lengths. Samples that the job has
outlived are dropped, then the groups are blended from the narrowest to the widest: a group with few
survivors counts little (shrinkage), and what remains at the end goes to a prior. Shrinking after
conditioning matters: a group whose jobs all ended sooner says nothing of one that still runs.

Many rows are blended at once as `mix` does one, to the last sample. A row is a job with its groups
(numbers of a `Lookup`, narrowest first) and what it has executed. Samples of many groups are in
flat arrays, so that thousands of jobs are looked up at once: a group's block holds its lengths in
order, with running sums of weights, of their squares and of weight times length. Everything that is
asked of a blend (mean, quantiles, index) follows from these sums at a length, and a length is found
by halving, all rows and groups together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.state.cells import Floats
from weft.predict.traits import Key

EPS = 1e-9
PRIOR_MEDIAN_S = 480.0
PRIOR_SIGMA = 2.3
PARETO_LEAST_S = 60.0
DECILES = np.arange(1, 10) / 10.0
LOG_NORMAL: Floats = PRIOR_MEDIAN_S * np.exp(
    PRIOR_SIGMA * np.array([NormalDist().inv_cdf(p) for p in DECILES.tolist()])
)
PARETO: Floats = DECILES / (1.0 - DECILES)


class WeightedLengths(NamedTuple):
    """Lengths with their weights."""

    x: Floats
    w: Floats


class Block(NamedTuple):
    """Lengths in order, with the sums of weights and of their squares up to each; 0 at first."""

    x: Floats
    w: Floats
    w2: Floats


def prior(attained: float) -> WeightedLengths:
    """The prediction for a job unlike any other: log-normal at first, then "as long again"."""
    totals = LOG_NORMAL if attained <= 0.0 else attained + max(attained, PARETO_LEAST_S) * PARETO
    return WeightedLengths(totals, np.full(len(totals), 1.0 / len(totals)))


@lru_cache(1024)
def decayed(count: int, half: float) -> Floats:
    """Weights of samples, the newest last: half after `half` further ones."""
    age: Floats = np.arange(count - 1, -1, -1, dtype=float)
    weights: Floats = 0.5 ** (age / half)
    weights.flags.writeable = False
    return weights


def effective(w: Floats) -> float:
    """Equally weighted samples that are worth as much."""
    total = float(w.sum())
    return total * total / float(np.dot(w, w)) if total > 0.0 else 0.0


def mix(
    levels: Sequence[WeightedLengths],
    attained: float,
    k: float,
    last: WeightedLengths | None = None,
) -> tuple[WeightedLengths, list[float]]:
    """The blend of total lengths above `attained`, narrowest level first, and each level's part.

    `last` takes what no level claims; without it the widest level with survivors does.
    """
    left, parts, blended = 1.0, [], []
    alive = [(s.x > attained) for s in levels]
    for i, (sample, keep) in enumerate(zip(levels, alive, strict=True)):
        w = sample.w[keep]
        n = effective(w)
        share = n / (n + k) if n > 0.0 else 0.0
        if last is None and n > 0.0 and not any(level.any() for level in alive[i + 1 :]):
            share = 1.0
        parts.append(left * share)
        if n > 0.0:
            blended.append(WeightedLengths(sample.x[keep], w / w.sum() * left * share))
        left *= 1.0 - share
    if last is not None:
        blended.append(WeightedLengths(last.x, last.w * left))
    if not blended:
        return WeightedLengths(np.zeros(0), np.zeros(0)), parts
    return WeightedLengths(
        np.concatenate([s.x for s in blended]), np.concatenate([s.w for s in blended])
    ), parts


def mix_sorted(
    blocks: Sequence[Block], attained: float, k: float
) -> tuple[WeightedLengths, list[float]]:
    """`mix` with the prior, of levels that are in order and summed up already."""
    left, parts, x, w = 1.0, [], [], []
    for block in blocks:
        at = int(block.x.searchsorted(attained, side="right"))
        part = 0.0
        if at < len(block.x):
            total = float(block.w[-1] - block.w[at - 1])
            n = total * total / max(float(block.w2[-1] - block.w2[at - 1]), 1e-300)
            part = left * n / (n + k)
            x.append(block.x[at:])
            w.append((block.w[at:] - block.w[at - 1 : -1]) * (part / total))
        parts.append(part)
        left -= part
    last = prior(attained)
    return WeightedLengths(np.concatenate([*x, last.x]), np.concatenate([*w, last.w * left])), parts


def quantile(sample: WeightedLengths, p: Sequence[float]) -> Floats:
    """For each p the smallest x whose cumulative weight is at least that part of all."""
    order = np.argsort(sample.x, kind="stable")
    total = np.cumsum(sample.w[order])
    wanted = np.asarray(p) * total[-1] * (1.0 - EPS)
    at = np.minimum(np.searchsorted(total, wanted, side="left"), len(order) - 1)
    return np.asarray(sample.x[order][at])


def mean(sample: WeightedLengths) -> float:
    """The weighted mean."""
    return float((sample.x * sample.w).sum() / sample.w.sum())


Ids = NDArray[np.intp]
NOBODY = 0  # the id of a group without samples


class Sums(NamedTuple):
    """Up to a length, or above one: weight, squares of weights, weight times length."""

    w: Floats
    w2: Floats
    wx: Floats

    def less(self, other: Sums) -> Sums:
        """The sums less others."""
        return Sums(self.w - other.w, self.w2 - other.w2, self.wx - other.wx)


class Lookup:
    """Blocks by number of the group; a group keeps its number for good."""

    def __init__(self) -> None:
        self._ids: dict[Key, int] = {}
        self._new: set[Key] = set()  # asked for, and not filled yet
        self._start: Ids = np.zeros(64, dtype=np.intp)
        self._size: Ids = np.zeros(64, dtype=np.intp)
        self._room: Ids = np.zeros(64, dtype=np.intp)
        self._cells: Floats = np.zeros((4, 1024))  # lengths and the three sums
        self._cells[0, 0] = -np.inf
        self._used = 1

    def __len__(self) -> int:
        return len(self._ids)

    def number(self, key: Key) -> int:
        """The number of a group, a new one if it was not asked for before."""
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self._ids) + 1
            self._new.add(key)
            if known >= len(self._start):
                self._start = np.concatenate([self._start, np.zeros_like(self._start)])
                self._size = np.concatenate([self._size, np.zeros_like(self._size)])
                self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        return known

    def refresh(self, changed: set[Key], sample: Callable[[Key], WeightedLengths | None]) -> None:
        """Bring the groups up to date that were asked for: those that changed, and new ones."""
        for key in self._new | (changed & self._ids.keys()):
            self._put(key, sample(key))
        self._new.clear()
        changed.clear()

    def _put(self, key: Key, sample: WeightedLengths | None) -> None:
        """The samples of a group are now these; None: it has none any more."""
        number = self._ids[key]
        count = 0 if sample is None else len(sample.x)
        if count > self._room[number]:
            self._make_room(number, count)
        self._size[number] = count
        if sample is None:
            return
        order = np.argsort(sample.x, kind="stable")
        x, w = sample.x[order], sample.w[order]
        block = self._cells[:, self._start[number] : self._start[number] + count + 1]
        block[0, 0], block[0, 1:] = -np.inf, x
        block[1:, 0] = 0.0
        np.cumsum([w, w * w, w * x], axis=1, out=block[1:, 1:])

    def _make_room(self, number: int, count: int) -> None:
        room = max(4, 1 << (count - 1).bit_length())
        while self._used + room + 1 > self._cells.shape[1]:
            self._cells = np.concatenate([self._cells, np.zeros_like(self._cells)], axis=1)
        self._start[number], self._room[number] = self._used, room
        self._used += room + 1

    def block(self, key: Key) -> Block:
        """The samples of a group that was refreshed."""
        x, w, w2, _ = self.cells(self._ids[key])
        return Block(x, w, w2)

    def cells(self, number: int) -> Floats:
        """The block of a group: lengths and the three sums."""
        start, size = int(self._start[number]), int(self._size[number])
        return self._cells[:, start : start + size + 1]

    def sums(self, ids: Ids) -> Sums:
        at = self._start[ids] + self._size[ids]
        return Sums(*self._cells[1:].take(at, axis=1))

    def sums_to(self, ids: Ids, x: Floats) -> Sums:
        """Return the sum of each group up to a length; `x` has the shape of `ids`."""
        at = self._start.take(ids) + self._counts(ids, x)
        return Sums(*self._cells[1:].take(at, axis=1))

    def next_above(self, ids: Ids, x: Floats) -> Floats:
        """Return the shortest length of each group above a length; infinite where there is none."""
        count = self._counts(ids, x)
        size = self._size[ids]
        above = self._cells[0, self._start[ids] + np.minimum(count + 1, size)]
        return np.where(count < size, above, np.inf)

    def _counts(self, ids: Ids, x: Floats) -> Ids:
        """The number of lengths of each group not above `x`: by halving, everywhere at once."""
        start, size = self._start.take(ids), self._size.take(ids)
        count = np.zeros(ids.shape, dtype=np.intp)
        lengths = self._cells[0]
        step = 1 << max(int(size.max(initial=0)).bit_length() - 1, 0)
        while step:
            there = count + step
            fits = (there <= size) & (lengths.take(start + np.minimum(there, size)) <= x)
            count = np.where(fits, there, count)
            step >>= 1
        return count


LONGEST_S = 1e9
HALVINGS = 20  # to 2e-5 of the length, then the next sample above
SHORTEST_S, LONGER = 15.0, 4.0  # horizons of the index: each that many times the one before
HORIZONS = SHORTEST_S * LONGER ** np.arange(10)


def index_of_one(blocks: Sequence[Floats], ages: Floats, k: float) -> Floats:
    """`Blend.index` of one row at several ages: for a few rows it is sooner done one by one.

    `blocks` are those of its groups: lengths and the three sums.
    """
    ahead = _look_ahead(tuple(ages.tolist()))
    sums, every, count = np.empty((len(blocks), 3, len(ahead.points))), [], len(ages)
    for i, block in enumerate(blocks):
        at = block[0].searchsorted(ahead.points, side="right") - 1
        block[1:].take(at, axis=1, out=sums[i], mode="clip")
        every.append(block[1:, -1:])
    below = sums[:, :, :count]
    total = np.array(every)
    above, squares, _ = (total - below).transpose(1, 0, 2)
    alive = above > EPS * np.maximum(total[:, 0], EPS)
    n = above * above / np.maximum(squares, 1e-300)
    share = np.where(alive, n / np.maximum(n + k, 1e-300), 0.0)
    rest = np.cumprod(1.0 - share, axis=0)
    share[1:] *= rest[:-1]
    per_weight = share / np.where(alive, above, 1.0)
    inside = sums[:, ::2, count:].reshape(len(blocks), 2, count, -1) - below[:, ::2, :, None]
    chance, length = (per_weight[:, None, :, None] * inside).sum(axis=0)
    left = rest[-1][:, None]
    chance += left * ahead.chance
    length += left * ahead.length
    used = length - chance * ages[:, None] + (1.0 - chance) * ahead.horizons
    best: Floats = (chance / np.maximum(used, 1e-9)).max(axis=1)
    return best


class ConditionedPrior(NamedTuple):
    """The ages that an index looks at, and what the prior says about them.

    Points are the ages and, of each, all lengths that are looked at; the others are ages x
    horizons.
    """

    points: Floats
    horizons: Floats
    chance: Floats
    length: Floats


@lru_cache(1024)
def _look_ahead(ages: tuple[float, ...]) -> ConditionedPrior:
    a = np.array(ages)
    reach, prior = _reach(a), _prior_of(a)[:, None, :]
    by_then = prior <= reach[:, :, None]
    length = np.where(by_then, prior, 0.0).mean(axis=2)
    points = np.concatenate([a, reach.ravel()])
    return ConditionedPrior(points, reach - a[:, None], by_then.mean(axis=2), length)


def _reach(ages: Floats) -> Floats:
    """Rows x horizons: lengths up to which an end is looked for; no single sample decides."""
    reach: Floats = ages[:, None] + np.maximum(HORIZONS, 0.25 * ages[:, None])
    return reach


def _prior_of(ages: Floats) -> Floats:
    """Rows x deciles: predictions for jobs unlike any other."""
    tail = ages[:, None] + np.maximum(ages, PARETO_LEAST_S)[:, None] * PARETO
    prior: Floats = np.where(ages[:, None] > 0.0, tail, LOG_NORMAL)
    return prior


class Blend:
    """The conditional distributions of some rows, at one moment."""

    def __init__(self, lookup: Lookup, ids: Ids, attained: Floats, k: float) -> None:
        self._k = k
        self._lookup, self._ids, self.attained = lookup, ids, attained
        self._wide = np.broadcast_to(attained[:, None], ids.shape)
        every = lookup.sums(ids)
        fresh = not (attained > 0.0).any()
        self._below = Sums(*np.zeros((3, *ids.shape))) if fresh else lookup.sums_to(ids, self._wide)
        self._above = every.less(self._below)
        # Where a group's last samples cancel, what is left of the sums is rounding.
        alive = self._above.w > EPS * np.maximum(every.w, EPS)
        w2 = np.where(alive, np.maximum(self._above.w2, 1e-300), 1.0)
        n = np.where(alive, self._above.w**2 / w2, 0.0)
        share = np.where(alive, n / np.where(alive, n + k, 1.0), 0.0)
        before = np.cumprod(1.0 - share, axis=1)
        rest: Floats = np.concatenate([np.ones((len(ids), 1)), before[:, :-1]], axis=1)
        self.parts: Floats = np.asarray(share * rest)
        self.prior_part = np.asarray(before[:, -1])
        self._per_weight = self.parts / np.where(alive, self._above.w, 1.0)
        self._prior = _prior_of(attained)

    def mean_left(self) -> Floats:
        """Expected seconds left."""
        total = (self._per_weight * self._above.wx).sum(axis=1)
        total += self.prior_part * self._prior.mean(axis=1)
        return np.asarray(total - self.attained)

    def cdf(self, x: Floats) -> Floats:
        """The chance that a row's total length is not above its `x`."""
        inside = self._between(x).w
        prior = (self._prior <= x[:, None]).mean(axis=1)
        return np.asarray((self._per_weight * inside).sum(axis=1) + self.prior_part * prior)

    def _between(self, x: Floats) -> Sums:
        """Sums of what lies above what was executed, and not above x."""
        wide = np.broadcast_to(np.maximum(x, self.attained)[:, None], self._ids.shape)
        return self._lookup.sums_to(self._ids, wide).less(self._below)

    def quantiles_left(self, p: Sequence[float]) -> Floats:
        """Rows x p: the smallest number of seconds that is enough with this chance."""
        times = len(p)  # all at once: a few rows cost as much as one
        rows = np.repeat(self._ids, times, axis=0), np.repeat(self.attained, times)
        lengths = Blend(self._lookup, *rows, self._k)._quantile(np.tile(p, len(self.attained)))
        return np.asarray(lengths.reshape(-1, times) - self.attained[:, None])

    def draw_left(self, u: Floats) -> Floats:
        """The quantile of each row at its own `u`."""
        return self._quantile(u) - self.attained

    def _quantile(self, p: Floats) -> Floats:
        """Halve the logarithm of the length, then take the next sample or decile above."""
        wanted = p * (1.0 - EPS)
        low = np.log(np.maximum(self.attained, 0.25))
        high = np.full(len(low), np.log(LONGEST_S))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            enough = self.cdf(np.exp(middle)) >= wanted
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
        x = np.exp(low)
        wide = np.broadcast_to(np.maximum(x, self.attained)[:, None], self._ids.shape)
        sampled = np.where(self.parts > 0.0, self._lookup.next_above(self._ids, wide), np.inf)
        decile = np.where(self._prior > x[:, None], self._prior, np.inf).min(axis=1)
        decile = np.where(self.prior_part > 0.0, decile, np.inf)
        lengths = np.minimum(sampled.min(axis=1, initial=np.inf), decile)
        return np.asarray(np.where(np.isfinite(lengths), lengths, np.exp(high)))

    def index(self) -> Floats:
        """The highest chance to end within a horizon, over the seconds expected until then."""
        reach = _reach(self.attained)
        ending, used = self._repeat(len(HORIZONS))._within(reach.ravel())
        best: Floats = (ending / np.maximum(used, 1e-9)).reshape(reach.shape).max(axis=1)
        return best

    def _repeat(self, times: int) -> Blend:
        """Each row that many times, one after the other."""
        wide = copy(self)
        wide._ids, wide.attained = np.repeat(self._ids, times, 0), self.attained.repeat(times)
        wide._below = Sums(*(np.repeat(column, times, 0) for column in self._below))
        wide._per_weight = np.repeat(self._per_weight, times, 0)
        wide.prior_part = self.prior_part.repeat(times)
        wide._prior = np.repeat(self._prior, times, 0)
        return wide

    def mean_of_many(self, counts: Floats) -> Floats:
        """Expected seconds per job where that many alike wait, none has run, and the first tells.

        One of each is tried; the others follow at once unless it outlives the best of the horizons.
        """
        reach = _reach(self.attained)
        ending, length = (
            column.reshape(reach.shape)
            for column in self._repeat(len(HORIZONS))._ends_within(reach.ravel())
        )
        mean, many = self.mean_left()[:, None], counts[:, None]
        tried = (many * length + mean - length) / (many * ending + 1.0 - ending)
        return np.asarray(np.minimum(tried.min(axis=1), mean[:, 0]))

    def _within(self, reach: Floats) -> tuple[Floats, Floats]:
        """The chance to end by then, and the seconds that are used until then on average."""
        chance, length = self._ends_within(reach)
        used = length - chance * self.attained + (1.0 - chance) * (reach - self.attained)
        return chance, used

    def _ends_within(self, reach: Floats) -> tuple[Floats, Floats]:
        """The chance to end by then, and this chance times the mean length of those that do."""
        inside = self._between(reach)
        chance = (self._per_weight * inside.w).sum(axis=1)
        length = (self._per_weight * inside.wx).sum(axis=1)
        by_then = self._prior <= reach[:, None]
        chance += self.prior_part * by_then.mean(axis=1)
        length += self.prior_part * np.where(by_then, self._prior, 0.0).mean(axis=1)
        return chance, length
