"""When jobs arrive: bursts inside an hourly rate that follows the calendar and its own moods."""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt

from weft.traces.draw.params import Arrival, Floats

HOUR = 3600.0
MAX_HOURS = 2_000_000

Ints = npt.NDArray[np.int64]


def bursts(jobs: int, continues: float, rng: np.random.Generator) -> Ints:
    """For each of `jobs` jobs in order of arrival, the number of the burst it belongs to."""
    follows = rng.random(jobs) < continues
    follows[:1] = False
    return np.cumsum(~follows) - 1


def times(arrival: Arrival, burst_of: Ints, span: float, rng: np.random.Generator) -> Floats:
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


def heads(arrival: Arrival, count: int, span: float, rng: np.random.Generator) -> Floats:
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


def hourly(arrival: Arrival, hours: int, rng: np.random.Generator) -> Floats:
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
