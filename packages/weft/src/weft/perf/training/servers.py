"""Speed of training by workers and parameter servers, as Optimus (EuroSys 2018) models it.

Every law is the inverse of a time that is linear in its coefficients, none of them negative, so
that a fit is a non-negative least squares problem. Measured times count by their relative error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from weft.core.errors import InvalidConfig
from weft.perf.goodput.model import Floats

MOST_STEPS = 300
ENOUGH = 1e-10


class SpeedPoint(NamedTuple):
    """A measured speed; all-reduce jobs have no servers."""

    servers: int
    workers: int
    speed: float


class Synchronous(NamedTuple):
    """Steps per second when every step waits for all workers; `batch` is shared among them."""

    t0: float
    t1: float
    t2: float
    t3: float
    t4: float
    batch: float

    def speed(self, p: Any, w: Any) -> Any:
        """Return the speed on `p` servers and `w` workers."""
        return 1.0 / (
            self.t0 * self.batch / w + self.t1 + self.t2 * w / p + self.t3 * w + self.t4 * p
        )


class Asynchronous(NamedTuple):
    """Steps per second of all workers together, each at its own pace."""

    t0: float
    t1: float
    t2: float
    t3: float

    def speed(self, p: Any, w: Any) -> Any:
        """Return the speed on `p` servers and `w` workers."""
        return w / (self.t0 + self.t1 * w / p + self.t2 * w + self.t3 * p)


def fit_synchronous(points: Iterable[SpeedPoint], batch: float) -> Synchronous:
    """The law that explains at least five measured speeds best."""
    p, w, speed = _columns(points, least=5)
    t = _fit((batch / w, np.ones_like(w), w / p, w, p), 1.0 / speed)
    return Synchronous(t[0], t[1], t[2], t[3], t[4], batch)


def fit_asynchronous(points: Iterable[SpeedPoint]) -> Asynchronous:
    """The law that explains at least four measured speeds best."""
    p, w, speed = _columns(points, least=4)
    return Asynchronous(*_fit((np.ones_like(w), w / p, w, p), w / speed))


def average(points: Iterable[SpeedPoint]) -> list[SpeedPoint]:
    """One point a configuration: the mean of what was measured there."""
    seen: dict[tuple[int, int], list[float]] = {}
    for p, w, speed in points:
        seen.setdefault((p, w), []).append(speed)
    return [SpeedPoint(p, w, float(np.mean(speeds))) for (p, w), speeds in sorted(seen.items())]


def nonnegative(a: Floats, b: Floats) -> Floats:
    """The x >= 0 that brings a @ x closest to b: the active-set method of Lawson and Hanson."""
    x = np.zeros(a.shape[1])
    free = np.zeros(a.shape[1], dtype=bool)
    slack = ENOUGH * float(np.abs(a.T @ b).max(initial=1e-300))
    for _ in range(MOST_STEPS):
        pull = np.where(free, -np.inf, a.T @ (b - a @ x))
        if free.all() or pull.max() <= slack:
            break
        free[pull.argmax()] = True
        x, free = _settle(a, b, x, free)
    return x


def _settle(a: Floats, b: Floats, x: Floats, free: Any) -> tuple[Floats, Any]:
    """Least squares over the free columns; those that would turn negative are let go."""
    while True:
        trial = np.zeros_like(x)
        trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        below = free & (trial <= 0.0)
        if not below.any():
            return trial, free
        part = x[below] / np.maximum(x[below] - trial[below], 1e-300)
        x = x + float(part.min()) * (trial - x)
        free = free & (x > 1e-14)
        x = np.where(free, x, 0.0)


def _columns(points: Iterable[SpeedPoint], least: int) -> tuple[Floats, Floats, Floats]:
    averages = average(points)
    if len(averages) < least:
        raise InvalidConfig(
            f"{len(averages)} measured speeds do not settle a law of {least} coefficients",
            hint=f"measure at least {least} different configurations",
        )
    p, w, speed = np.array(averages, dtype=float).T
    return p, w, speed


def _fit(parts: tuple[Floats, ...], seconds: Floats) -> list[float]:
    columns = np.stack(parts, axis=1) / seconds[:, None]
    size = np.linalg.norm(columns, axis=0)
    numbers: list[float] = (nonnegative(columns / size, np.ones(len(seconds))) / size).tolist()
    return numbers
