"""IADeep's tuning of two jobs on one device, from its description.

Shares no code with the policy, its search or the simulator: every few seconds a setting is
measured, a Gaussian process says which is next, and the best one measured stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Setting = tuple[int, ...]


@dataclass(frozen=True)
class Trainer:
    """A job: batch, seconds of a step and GB (fixed, a sample), noise; arrival and length."""

    batch: int
    step_s: tuple[float, float]
    gb: tuple[float, float]
    noise: float
    at: float
    seconds: float

    def sizes(self) -> list[int]:
        low = self.batch * 2 // 3 // 2 * 2
        return list(range(low, 2 * self.batch, max((2 * self.batch - low) // 32, 1)))

    def busy(self, size: int) -> float:
        return self.step_s[1] * size / (self.step_s[0] + self.step_s[1] * size)

    def progress(self, size: int) -> float:
        """Relative to the job's own batch."""
        rates = [m / (self.step_s[0] + self.step_s[1] * m) for m in (size, self.batch)]
        return rates[0] / rates[1] * (self.noise + self.batch) / (self.noise + size)


def speeds(jobs: list[Trainer], setting: Setting) -> list[float]:
    """Progress of each: neighbours stretch a step by as much as they keep the GPU busy."""
    busy = [job.busy(size) for job, size in zip(jobs, setting, strict=True)]
    own = [job.progress(size) for job, size in zip(jobs, setting, strict=True)]
    return [v / (1.0 + sum(busy) - b) for v, b in zip(own, busy, strict=True)]


def settings_measured(
    jobs: list[Trainer], device_gb: float, probes: int, patience: int
) -> list[Setting]:
    """The settings in the order in which they are measured."""
    grid = [
        point
        for point in product(*(job.sizes() for job in jobs))
        if sum(j.gb[0] + j.gb[1] * m for j, m in zip(jobs, point, strict=True)) <= device_gb
    ]
    seen = [tuple(job.batch for job in jobs)]
    cost = [_degradation(jobs, seen[0])]
    while len(seen) < probes:
        if len(seen) > patience and min(cost[-patience:]) > 0.99 * min(cost[:-patience]):
            break
        bound = _lower_bounds(jobs, seen, cost, grid)
        least = min((b, i) for i, b in enumerate(bound) if grid[i] not in seen)
        seen.append(grid[least[1]])
        cost.append(_degradation(jobs, seen[-1]))
    return seen


def _degradation(jobs: list[Trainer], setting: Setting) -> float:
    return sum(1.0 / v for v in speeds(jobs, setting))


def _lower_bounds(
    jobs: list[Trainer], seen: list[Setting], cost: list[float], grid: list[Setting]
) -> list[float]:
    side = np.array([job.sizes()[-1] - job.sizes()[0] for job in jobs], dtype=float)

    def alike(ones: list[Setting], others: list[Setting]) -> NDArray[np.float64]:
        gap = (np.array(ones)[:, None] - np.array(others)[None]) / side
        near: NDArray[np.float64] = np.exp(-(gap**2).sum(axis=2) / (2.0 * 0.35**2))
        return near

    spread = float(np.std(cost)) or 1.0
    inverse = np.linalg.inv(alike(seen, seen) + 1e-3 * np.eye(len(seen)))
    across = alike(grid, seen)
    mean = np.mean(cost) + across @ inverse @ (np.array(cost) - np.mean(cost))
    left = 1.0 - np.einsum("ij,jk,ik->i", across, inverse, across)
    hope = 0.2 * sqrt(2.0 * log(len(grid) * len(seen) ** 2 * pi**2 / 0.6))
    bounds: list[float] = (mean - hope * spread * np.sqrt(np.maximum(left, 0.0))).tolist()
    return bounds


def simulate_pair(
    jobs: list[Trainer], device_gb: float, probes: int, patience: int, probe_s: float
) -> list[float]:
    """When each of two jobs ends; the first arrives first and is still there."""
    first, second = jobs
    measured = settings_measured(jobs, device_gb, probes, patience)
    best = min(measured, key=lambda candidate: _degradation(jobs, candidate))
    left = [first.seconds - (second.at - first.at), second.seconds]
    now = second.at
    for setting, lasts in [*((probed, probe_s) for probed in measured), (best, float("inf"))]:
        rates = speeds(jobs, setting)
        over = [rest / rate for rest, rate in zip(left, rates, strict=True)]
        until = min(*over, lasts)
        left = [rest - rate * until for rest, rate in zip(left, rates, strict=True)]
        now += until
        if until < lasts:
            break
    alone = 0 if over[0] > over[1] else 1
    ends = [now, now]
    ends[alone] = now + left[alone]
    return ends
