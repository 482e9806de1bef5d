"""Laws fitted to a loss that falls, to predict what the next iterations bring (SLAQ, SoCC 2017).

First-order methods converge sublinearly, 1 / (a k^2 + b k + c) + d; quasi-Newton methods and the
like linearly, mu^(k - b) + c. Old points count less and less. For a given d, or mu, what is left is
linear least squares: all candidates are solved together, and the best is refined.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.perf.training.servers import nonnegative

LEAST_POINTS = 3
DECAY = 0.9
CANDIDATES = 33
REFINEMENTS = 4
# All ways to leave out some of a, b and c; one of them is the least squares with nothing negative.
SUBSETS = [s for size in (1, 2, 3) for s in combinations(range(3), size)]
SEGMENTS = 3
WINDOW = 3
LOSS_REFINEMENTS = 8
UNKNOWN = 20.0  # epochs left of a job whose loss follows no law


@frozen
class SublinearConvergence:
    """1 / (a k^2 + b k + c) + d."""

    a: float
    b: float
    c: float
    d: float

    def __call__(self, k: Any) -> Any:
        return 1.0 / (self.a * k**2 + self.b * k + self.c) + self.d


@frozen
class LinearConvergence:
    """mu^(k - b) + c, as scale mu^k + c."""

    mu: float
    scale: float
    c: float

    def __call__(self, k: Any) -> Any:
        return self.scale * self.mu**k + self.c


def fit_law(
    iterations: Sequence[float], losses: Sequence[float], family: str = ""
) -> SublinearConvergence | LinearConvergence | None:
    """The law that explains a history best; of both families unless one is named.

    None for fewer than three points, or where nothing falls.
    """
    k, loss = np.asarray(iterations, dtype=float), np.asarray(losses, dtype=float)
    if len(k) < LEAST_POINTS or not np.isfinite(loss).all() or loss.min() <= 0.0 or k.max() <= 0.0:
        return None
    weight = np.power(DECAY, np.arange(len(k))[::-1] / 2.0)
    span, size = float(k.max()), float(loss.max())
    tried: list[tuple[float, SublinearConvergence | LinearConvergence | None]] = []
    if family != "linear":
        tried.append(_sublinear(k / span, loss / size, weight, span, size))
    if family != "sublinear":
        tried.append(_linear(k / span, loss / size, weight, span, size))
    error, law = min(tried, key=lambda fitted: fitted[0])
    return law if np.isfinite(error) else None


def _sublinear(
    k: Floats, loss: Floats, weight: Floats, span: float, size: float
) -> tuple[float, SublinearConvergence | None]:
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
    return float(off @ off), SublinearConvergence(a, b, c, floor * size)


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
) -> tuple[float, LinearConvergence | None]:
    """`mu` by how often it falls to a part of e over the history: from hardly ever to often."""
    low, high = np.log(1e-3), np.log(1e3)
    best: tuple[float, LinearConvergence | None] = (np.inf, None)
    for _ in range(REFINEMENTS):
        rates = np.exp(np.linspace(low, high, CANDIDATES))
        errors, scale, floor = _with_rates(k, loss, weight, rates)
        at = int(errors.argmin())
        if errors[at] < best[0]:
            mu = float(np.exp(-rates[at] / span))
            best = (
                float(errors[at]),
                LinearConvergence(mu, float(scale[at]) * size, float(floor[at]) * size),
            )
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


# ---- How many epochs a job still needs, from its loss so far (Optimus, EuroSys 2018)
#
# The law is that of stochastic gradient descent, loss(k) = 1 / (b0 k + b1) + b2 with nothing
# negative. For a given b2 it is linear in the others; b2 is searched for.


class LossCurve(NamedTuple):
    """A fitted law."""

    b0: float
    b1: float
    b2: float

    def at(self, epoch: float) -> float:
        return 1.0 / (self.b0 * epoch + self.b1) + self.b2

    def converged(self, drop: float = 0.05, over: int = 10, most: int = 100) -> int:
        """The first epoch whose last `over` epochs lowered the loss by less than `drop`."""
        for epoch in range(over, most):
            if self.at(epoch - over) - self.at(epoch) < drop:
                return epoch
        return most


def epochs_left(losses: Sequence[float]) -> float:
    """Epochs until the loss hardly falls any more; `losses` has one value an epoch done."""
    curve = fit_loss(normalise(losses))
    if curve is None:
        return UNKNOWN
    return float(max(curve.converged() - len(losses), 0))


def normalise(losses: Sequence[float]) -> Floats:
    """Losses as parts of the largest, outliers replaced by the mean of their neighbours.

    An outlier is above the median of the values before it or below that of the values after it,
    which no falling curve ever is.
    """
    value = np.asarray(losses, dtype=float)
    if not len(value) or value.max() <= 0.0:
        return value
    smooth = value.copy()
    for i in range(1, len(value) - 1):
        before, after = value[max(i - WINDOW, 0) : i], value[i + 1 : i + 1 + WINDOW]
        if value[i] > np.median(before) or value[i] < np.median(after):
            smooth[i] = (value[i - 1] + value[i + 1]) / 2.0
    return np.asarray(smooth / smooth.max())


def fit_loss(losses: Sequence[float] | Floats) -> LossCurve | None:
    """The law that explains losses of epochs 0, 1, ... best; None where none does.

    Later epochs weigh more: four times as much in each third of the points.
    """
    value = np.asarray(losses, dtype=float)
    n = len(value)
    if n < LEAST_POINTS or not np.isfinite(value).all() or value.min() <= 0.0:
        return None
    weight: Floats = np.power(4.0, np.arange(n) * SEGMENTS // n)
    low, high = 0.0, float(value.min()) * (1.0 - 1e-9)
    best: tuple[float, LossCurve | None] = (np.inf, None)
    for _ in range(LOSS_REFINEMENTS):
        grid = np.linspace(low, high, CANDIDATES)
        tried = [_with_floor(value, weight, float(b2)) for b2 in grid]
        at = int(np.argmin([error for error, _ in tried]))
        best = min(best, tried[at], key=lambda fitted: fitted[0])
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, CANDIDATES - 1)])
    return best[1]


def _with_floor(value: Floats, weight: Floats, b2: float) -> tuple[float, LossCurve | None]:
    """The best b0 and b1 for one b2, and the weighted squared error."""
    above = value - b2
    # An error of 1 / above counts as much as the error of the loss that it leads to.
    counts = weight * above**2
    epochs = np.arange(len(value), dtype=float)
    columns = np.stack([epochs, np.ones_like(epochs)], axis=1) * counts[:, None]
    b0, b1 = nonnegative(columns, counts / above)
    if b1 <= 0.0:
        return np.inf, None
    off = weight * (1.0 / (b0 * epochs + b1) - above)
    return float(off @ off), LossCurve(float(b0), float(b1), b2)
