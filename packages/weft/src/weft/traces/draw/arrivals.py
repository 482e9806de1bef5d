"""Arrivals of jobs: bursts inside an hourly rate that follows the calendar and its own moods.

Who submits: few users own most jobs, and each belongs to one tenant.

How long jobs run: published distributions, correlated with size and final state.

A job gets a latent score, a normal number shifted by its size class and its state. The score's
own distribution function turns it into a uniform number, and the published one into seconds; so
the lengths keep the published distribution whatever the shifts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, erf, sqrt

import numpy as np
import numpy.typing as npt

from weft.traces.draw.params import ArrivalProcess, Family, Floats

HOUR = 3600.0
MAX_HOURS = 2_000_000

Ints = npt.NDArray[np.int64]


def bursts(jobs: int, continues: float, rng: np.random.Generator) -> Ints:
    """For each of `jobs` jobs in order of arrival, the number of the burst it belongs to."""
    follows = rng.random(jobs) < continues
    follows[:1] = False
    return np.cumsum(~follows) - 1


def times(arrival: ArrivalProcess, burst_of: Ints, span: float, rng: np.random.Generator) -> Floats:
    """A time for every job, sorted inside its burst; the first is 0 and the last is `span`.

    The calendar starts on a Monday at midnight. Heads of bursts are placed independently with a
    density that follows the hourly rate: a Poisson process, given how many there are.
    """
    first_of = heads(arrival, int(burst_of[-1]) + 1, span, rng)
    gaps = np.where(
        rng.random(burst_of.size) < arrival.together,
        0.0,
        arrival.gap_s * np.exp(rng.standard_normal(burst_of.size)),
    )
    first = np.flatnonzero(np.diff(burst_of, prepend=-1))
    total = np.cumsum(gaps)
    when = first_of[burst_of] + total - total[first][burst_of]
    return stretch(when, span)


def heads(arrival: ArrivalProcess, count: int, span: float, rng: np.random.Generator) -> Floats:
    """`count` times in [0, span), sorted, placed by the hourly rate."""
    hours = min(max(1, ceil(span / HOUR)), MAX_HOURS)
    edges = np.linspace(0.0, 1.0, hours + 1) * hours * HOUR
    edges[-1] = span
    weight = hourly(arrival, hours, rng) * np.diff(edges)
    share = np.concatenate(([0.0], np.cumsum(weight) / weight.sum()))
    placed: Floats = np.sort(np.interp(rng.random(count), share, edges))
    return placed


def stretch(when: Floats, span: float) -> Floats:
    """`when` moved and scaled a little so that it starts at 0 and ends at `span`."""
    start, end = when.min(), when.max()
    if end <= start:
        return np.linspace(0.0, span, when.size)
    moved: Floats = (when - start) * (span / (end - start))
    return moved


def hourly(arrival: ArrivalProcess, hours: int, rng: np.random.Generator) -> Floats:
    """The relative rate of each hour: hour of day, weekday, and correlated lognormal noise."""
    h = np.arange(hours)
    calendar = arrival.hours[h % 24] * arrival.weekdays[h // 24 % 7]
    shocks = rng.standard_normal(hours)
    rho, fresh = arrival.memory, np.sqrt(1.0 - arrival.memory**2)
    level, x = np.empty(hours), shocks[0]
    for i, shock in enumerate(shocks):
        x = rho * x + fresh * shock if i else shock
        level[i] = x
    noise: Floats = calendar * np.exp(np.sqrt(arrival.noise) * level - arrival.noise / 2)
    return noise


def poisson(jobs: int, span: float, rng: np.random.Generator) -> Floats:
    """Times with independent exponential gaps; the first is 0 and the last is `span`."""
    return stretch(np.cumsum(rng.standard_exponential(jobs)), span)


# Nodes of the virtual clusters, as the studies of the traces count them.
PHILLY_TENANTS = (64, 64, 64, 32, 32, 32, 16, 16, 16, 8, 8)
VENUS_TENANTS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)


def draw_users(count: int, users: int, sigma: float, rng: np.random.Generator) -> Ints:
    """A user for each of `count` bursts; weights are lognormal with `sigma`."""
    weight = np.exp(sigma * rng.standard_normal(users))
    return rng.choice(users, size=count, p=weight / weight.sum())


def tenants_of(users: int, nodes: Sequence[int], rng: np.random.Generator) -> Ints:
    """The tenant of each user, likelier where the tenant has more nodes."""
    size = np.asarray(nodes, dtype=np.float64)
    return rng.choice(size.size, size=users, p=size / size.sum())


KNOTS = 2.0 ** np.arange(22)
SHORTEST = 0.5
GRID = np.linspace(-8.0, 12.0, 4001)


@dataclass(frozen=True)
class Lengths:
    """The lengths of one trace; `extra` are further shifts as (probability, shift) pairs."""

    family: Family
    extra: tuple[tuple[float, float], ...] = ((1.0, 0.0),)

    def draw(self, score: Floats, sizes: Floats, shift: Floats) -> Floats:
        """Seconds for standard normal `score`s, given GPUs and further shifts."""
        bucket = np.searchsorted(self.family.bucket_upper, sizes)
        bucket = np.minimum(bucket, self.family.bucket_offset.size - 1)
        shifted = score + self.family.bucket_offset[bucket] + shift
        u = np.interp(shifted, GRID, self._distribution)
        return quantile(self.family.duration_cdf, u, self.family.duration_cap)

    @cached_property
    def _distribution(self) -> Floats:
        f = self.family
        bucket = np.minimum(np.searchsorted(f.bucket_upper, f.sizes), f.bucket_offset.size - 1)
        phi = np.array([0.5 * (1.0 + erf(z / sqrt(2.0))) for z in GRID])
        total = np.zeros_like(GRID)
        for p_size, offset in zip(f.size_p, f.bucket_offset[bucket], strict=True):
            for p_state, shift in zip(f.state_p, f.state_offset, strict=True):
                for p_extra, more in self.extra:
                    z = GRID - offset - shift - more
                    total += p_size * p_state * p_extra * np.interp(z, GRID, phi, 0.0, 1.0)
        return total


def quantile(cdf: Floats, u: Floats, cap: float) -> Floats:
    """Seconds at probability `u` of a distribution given at 1, 2, 4, ... 2^21 s, at most `cap`."""
    known = np.concatenate(([0.0], cdf, [1.0]))
    at = np.log(np.concatenate(([SHORTEST], KNOTS, [max(cap, 2 * KNOTS[-1])])))
    # Knots without mass between them must not be met in the middle: nudge them apart.
    known = known + 1e-12 * np.arange(known.size)
    seconds: Floats = np.exp(np.interp(u, known, at))
    return np.clip(seconds, 1.0, cap)
