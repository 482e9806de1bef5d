"""Laws fitted to a loss that falls, to predict what the next iterations bring (SLAQ, SoCC 2017).

First-order methods converge sublinearly, 1 / (a k^2 + b k + c) + d; quasi-Newton methods and the
like linearly, mu^(k - b) + c. Old points count less and less. For a given d, or mu, what is left is
linear least squares: all candidates are solved together, and the best is refined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from weft.core.state.table import Floats
from weft.frozen import frozen

LEAST_POINTS = 3
DECAY = 0.9
CANDIDATES = 33
REFINEMENTS = 4
# All ways to leave out some of a, b and c; one of them is the least squares with nothing negative.
SUBSETS = [s for size in (1, 2, 3) for s in combinations(range(3), size)]


@frozen
class Sublinear:
    """1 / (a k^2 + b k + c) + d."""

    a: float
    b: float
    c: float
    d: float

    def __call__(self, k: Any) -> Any:
        """The loss after k iterations."""
        return 1.0 / (self.a * k**2 + self.b * k + self.c) + self.d


@frozen
class Linear:
    """mu^(k - b) + c, as scale mu^k + c."""

    mu: float
    scale: float
    c: float

    def __call__(self, k: Any) -> Any:
        """The loss after k iterations."""
        return self.scale * self.mu**k + self.c


def fit_law(
    iterations: Sequence[float], losses: Sequence[float], family: str = ""
) -> Sublinear | Linear | None:
    """The law that explains a history best; of both families unless one is named.

    None for fewer than three points, or where nothing falls.
    """
    k, loss = np.asarray(iterations, dtype=float), np.asarray(losses, dtype=float)
    if len(k) < LEAST_POINTS or not np.isfinite(loss).all() or loss.min() <= 0.0 or k.max() <= 0.0:
        return None
    weight = np.power(DECAY, np.arange(len(k))[::-1] / 2.0)
    span, size = float(k.max()), float(loss.max())
    tried: list[tuple[float, Sublinear | Linear | None]] = []
    if family != "linear":
        tried.append(_sublinear(k / span, loss / size, weight, span, size))
    if family != "sublinear":
        tried.append(_linear(k / span, loss / size, weight, span, size))
    error, law = min(tried, key=lambda fitted: fitted[0])
    return law if np.isfinite(error) else None


def _sublinear(
    k: Floats, loss: Floats, weight: Floats, span: float, size: float
) -> tuple[float, Sublinear | None]:
    low, high = 0.0, float(loss.min()) * (1.0 - 1e-6)
    least, best, floor = np.inf, np.zeros(3), 0.0
    powers = np.stack([k**2, k, np.ones_like(k)], axis=1)
    for _ in range(REFINEMENTS):
        grid = np.linspace(low, high, CANDIDATES)
        errors, abc = _with_floors(powers, loss, weight, grid)
        at = int(errors.argmin())
        if errors[at] < least:
            least, best, floor = float(errors[at]), abc[at], float(grid[at])
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, CANDIDATES - 1)])
    inverse = powers @ best
    if inverse.min() <= 1e-9:
        return np.inf, None
    off = weight * (1.0 / inverse + floor - loss)
    with np.errstate(all="ignore"):  # of sizes that no float holds nothing is believed
        abc = best / size / np.array([span**2, span, 1.0])
    if not np.isfinite(abc).all():
        return np.inf, None
    a, b, c = abc.tolist()
    return float(off @ off), Sublinear(a, b, c, floor * size)


def _with_floors(
    powers: Floats, loss: Floats, weight: Floats, floors: Floats
) -> tuple[Floats, Floats]:
    """For each floor the a, b and c that fit 1 / (loss - floor) best, and how badly they do."""
    above = loss[None, :] - floors[:, None]
    # An error of 1 / above counts as much as the error of the loss that it leads to.
    counts = weight * above**2
    columns = powers[None, :, :] * counts[:, :, None]
    wanted = counts / above
    gram = columns.transpose(0, 2, 1) @ columns
    gram += 1e-13 * np.eye(3) * np.trace(gram, axis1=1, axis2=2)[:, None, None]
    moment = (wanted[:, None, :] @ columns)[:, 0, :]
    errors = np.full(len(floors), np.inf)
    numbers = np.zeros((len(floors), 3))
    for subset in SUBSETS:
        part = np.zeros((len(floors), 3))
        square = gram[:, subset, :][:, :, subset]
        part[:, subset] = np.linalg.solve(square, moment[:, subset, None])[:, :, 0]
        # Less than all of the squares by so much; all are the same for every subset.
        error = -(part * moment).sum(axis=1)
        better = (part >= 0.0).all(axis=1) & (error < errors)
        errors[better], numbers[better] = error[better], part[better]
    return errors + (wanted**2).sum(axis=1), numbers


def _linear(
    k: Floats, loss: Floats, weight: Floats, span: float, size: float
) -> tuple[float, Linear | None]:
    """`mu` by how often it falls to a part of e over the history: from hardly ever to often."""
    low, high = np.log(1e-3), np.log(1e3)
    best: tuple[float, Linear | None] = (np.inf, None)
    for _ in range(REFINEMENTS):
        rates = np.exp(np.linspace(low, high, CANDIDATES))
        errors, scale, floor = _with_rates(k, loss, weight, rates)
        at = int(errors.argmin())
        if errors[at] < best[0]:
            mu = float(np.exp(-rates[at] / span))
            best = float(errors[at]), Linear(mu, float(scale[at]) * size, float(floor[at]) * size)
        edges = np.log(rates)
        low, high = float(edges[max(at - 1, 0)]), float(edges[min(at + 1, CANDIDATES - 1)])
    return best


def _with_rates(
    k: Floats, loss: Floats, weight: Floats, rates: Floats
) -> tuple[Floats, Floats, Floats]:
    """For each rate the least error, scale and floor; neither of them negative."""
    falls = np.exp(-rates[:, None] * k[None, :])
    w = weight**2
    total = w.sum()
    mean_fall, mean_loss = falls @ w / total, float(w @ loss) / total
    spread = ((falls - mean_fall[:, None]) ** 2) @ w
    together = (falls - mean_fall[:, None]) @ (w * (loss - mean_loss))
    scale = np.divide(together, spread, out=np.zeros(len(rates)), where=spread > 1e-18)
    floor = mean_loss - scale * mean_fall
    # Below zero the floor is zero, and the scale is found again without it.
    alone = falls @ (w * loss) / np.maximum((falls**2) @ w, 1e-300)
    scale, floor = np.where(floor < 0.0, alone, scale), np.maximum(floor, 0.0)
    off = weight * (scale[:, None] * falls + floor[:, None] - loss[None, :])
    errors = np.where(scale >= 0.0, np.einsum("rn,rn->r", off, off), np.inf)
    return errors, scale, floor
