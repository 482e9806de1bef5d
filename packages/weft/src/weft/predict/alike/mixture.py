"""Blends of many rows at once: the same as `mixture.mix`, row by row, to the last sample.

A row is a job with its groups (numbers of a `Lookup`, narrowest first) and what it has executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.predict.alike.lookup import Ids, Lookup, Sums
from weft.predict.alike.mixture import EPS, LOG_NORMAL, PARETO, PARETO_LEAST_S

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


class Ahead(NamedTuple):
    """Where an index looks from some ages, and what the prior says about that.

    Points are the ages and, of each, all lengths that are looked at; the others are ages x
    horizons.
    """

    points: Floats
    horizons: Floats
    chance: Floats
    length: Floats


@lru_cache(1024)
def _look_ahead(ages: tuple[float, ...]) -> Ahead:
    """It is the same for all jobs of these ages."""
    a = np.array(ages)
    reach, prior = _reach(a), _prior_of(a)[:, None, :]
    by_then = prior <= reach[:, :, None]
    length = np.where(by_then, prior, 0.0).mean(axis=2)
    points = np.concatenate([a, reach.ravel()])
    return Ahead(points, reach - a[:, None], by_then.mean(axis=2), length)


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
