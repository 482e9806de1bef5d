"""The quota of spot jobs: as many GPUs as leave an hour of theirs undisturbed, as promised.

The GPUs that guaranteed jobs will want in an hour are forecast for each tenant as a mean and a
deviation; tenants are taken to be independent. What is left of a kind above a quantile of their
sum is for spot jobs, times a factor that follows how well promises were kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, sqrt
from statistics import NormalDist, fmean, pstdev
from typing import Protocol

from weft.frozen import frozen

HOUR_S = 3600.0
WEEK_H, DAY_H = 168, 24
KEPT_H = 4 * WEEK_H  # hours that forecasts look back
FEWEST = 2  # hours that make a deviation
LEAST_ETA, MOST_ETA = 0.1, 2.0


@frozen
class DemandForecast:
    """GPUs that will be in use at most during an hour, as a mean and a deviation."""

    mean: float
    deviation: float = 0.0


class Forecaster(Protocol):
    """Anything that says how many GPUs will be in use."""

    def forecast_hour(self, past: Mapping[int, float], hour: int) -> DemandForecast:
        """For an hour, from the most in use during hours before it."""
        ...


@frozen
class SameHourOfWeek:
    """Mean and deviation of the same hour in weeks before; of days, then of late, without these."""

    def forecast_hour(self, past: Mapping[int, float], hour: int) -> DemandForecast:
        """From the first of these that has two hours to tell about; 0 where nothing is known."""
        weeks = [hour - WEEK_H * n for n in range(1, KEPT_H // WEEK_H + 1)]
        days = [hour - DAY_H * n for n in range(1, WEEK_H // DAY_H + 1)]
        late = [hour - n for n in range(1, DAY_H + 1)]
        for hours in (weeks, days, late):
            known = [past[known_hour] for known_hour in hours if known_hour in past]
            if len(known) >= FEWEST:
                return DemandForecast(fmean(known), pstdev(known))
        return DemandForecast(fmean(known) if known else 0.0)


@frozen
class LastDay:
    """Mean and deviation of the last 24 hours."""

    def forecast_hour(self, past: Mapping[int, float], hour: int) -> DemandForecast:
        """0 where nothing is known."""
        known = [past[known_hour] for known_hour in range(hour - DAY_H, hour) if known_hour in past]
        return DemandForecast(fmean(known), pstdev(known)) if known else DemandForecast(0.0)


FORECASTERS: Mapping[str, Forecaster] = {"week": SameHourOfWeek(), "day": LastDay()}


def add_forecasts(parts: Iterable[DemandForecast]) -> DemandForecast:
    """The sum of forecasts that do not depend on each other."""
    parts = list(parts)
    mean = sum(part.mean for part in parts)
    return DemandForecast(mean, sqrt(sum(part.deviation**2 for part in parts)))


def free_gpus(capacity: int, forecast: DemandForecast, quantile: float, now: float = 0.0) -> int:
    """GPUs that are free during an hour as promised; `now` are in use already."""
    used = forecast.mean + NormalDist().inv_cdf(quantile) * forecast.deviation
    return capacity - min(max(floor(max(used, now) + 1e-9), 0), capacity)


def spot_quota(free: Sequence[int], eta: float = 1.0) -> float:
    """GPUs for spot jobs where that many are free in each hour of the promise."""
    return eta * min(free)


def adjust_eta(eta: float, evicted: float, promise: float, *, waits_long: bool) -> float:
    """The factor after a part `evicted` of the promised hours was not kept.

    It shrinks where more are broken than promised, and grows where few are and spot jobs wait.
    """
    allowed = 1.0 - promise
    if evicted >= 1.5 * allowed - 1e-12:
        eta *= allowed / evicted
    elif evicted <= 0.5 * allowed + 1e-12 and waits_long:
        eta *= 1.5 - evicted / allowed
    return min(max(eta, LEAST_ETA), MOST_ETA)
