"""Fit the interference model to measured groups.

Levenberg-Marquardt on the logarithms of rates, with Huber weights because a solo baseline that was
limited by something else makes some measured rates absurd (above 1). Ridge penalties pull the laws
to a physical prior: exposure follows `busy` alone, jobs weigh the same, sharing costs what it
gives, and the kernel terms are 0. The result depends only on the rows and their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import InvalidConfig
from weft.frozen import frozen
from weft.perf.sharing.interference import (
    LIMIT,
    ROUNDS,
    Features,
    Interference,
    InterferenceLaw,
    exposure,
    place_on_scales,
    rates_by_share,
)

Floats = NDArray[np.float64]

STEPS = 60
HUBER = 0.1
NUDGE = 1e-5
DEMANDS = 3  # features of which more never makes a better neighbour: they come first
FOLDS = 6
ODD = 0.3  # an error above is the measurement's
MOST_COST = 1.1  # what switching loses in pairs that fill the GPU
LOWEST = 0.02  # a measured rate below is a stall, not a share


class Group(NamedTuple):
    """Jobs measured together: names of their solo rows, and each one's rate over its rate alone."""

    members: tuple[str, ...]
    rates: tuple[float, ...]


@frozen
class Penalty:
    """How strongly weights and kernel terms are pulled to their prior; how far kernels reach.

    Without `kernel` a law is linear in the features alone.
    """

    weights: float = 0.02
    bumps: float = 0.05
    width: float = 0.5
    kernel: bool = True


def fit(
    solo: Mapping[str, Features],
    pairs: Mapping[str, Sequence[Group]],
    penalty: Penalty | None = None,
) -> Interference:
    """A law for every discipline in `pairs`, whose groups may have any number of members.

    Without a penalty the kernel terms are kept only where they lower the error on groups left out.
    """
    laws = {}
    for discipline, groups in pairs.items():
        _check(solo, groups, discipline)
        chosen = penalty or min(CANDIDATES, key=lambda p: left_out(solo, groups, p))
        laws[discipline] = _fit(solo, groups, chosen)
    return Interference(laws, dict(solo))


CANDIDATES = (Penalty(kernel=False), Penalty())


def left_out(solo: Mapping[str, Features], groups: Sequence[Group], penalty: Penalty) -> float:
    """Mean error of log rates, each at most `ODD`, of groups whose fold is not fitted."""
    off: list[float] = []
    for fold in range(min(FOLDS, len(groups) - 1)):
        rest = [group for at, group in enumerate(groups) if at % FOLDS != fold]
        law = _fit(solo, rest, penalty)
        for group in groups[fold::FOLDS]:
            measured = np.log(np.clip(group.rates, LOWEST, 1.0))
            rates = rates_by_share([exposure(law, solo[name]) for name in group.members], law.cost)
            off.extend(np.abs(np.log(rates) - measured).tolist())
    return float(np.mean(np.minimum(off, ODD))) if off else 0.0


def _check(solo: Mapping[str, Features], groups: Sequence[Group], discipline: str) -> None:
    if not groups:
        raise InvalidConfig(
            f"no measured groups under {discipline}", hint="give groups of two or more jobs"
        )
    for group in groups:
        if len(group.members) < 2 or len(group.members) != len(group.rates):
            raise InvalidConfig(
                f"{len(group.rates)} rates of {len(group.members)} members: {group.members}",
                hint="a group has two or more members and a rate for each",
            )
        if not all(0.0 < rate < np.inf for rate in group.rates):
            raise InvalidConfig(f"rates {group.rates} of {group.members} are not above 0")
    unmeasured = sorted(
        {n for g in groups for n in g.members if n not in solo or solo[n].busy is None}
    )
    if unmeasured:
        raise InvalidConfig(
            f"no solo features of {', '.join(unmeasured)}",
            hint="every member needs a solo row with `busy`",
        )


def _fit(
    solo: Mapping[str, Features], groups: Sequence[Group], penalty: Penalty
) -> InterferenceLaw:
    names = sorted({name for group in groups for name in group.members})
    points = np.array([place_on_scales(solo[name]) for name in names])
    problem = _Problem(points, names, groups, penalty)
    return problem.law(problem.minimise())


class _Problem:
    """Residuals and slopes over one vector: both rows of weights and bumps, log cost."""

    def __init__(
        self, points: Floats, names: Sequence[str], groups: Sequence[Group], penalty: Penalty
    ) -> None:
        self.points, self.penalty = points, penalty
        linear = np.hstack([np.ones((len(names), 1)), points])
        apart = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
        bumps = np.exp(-apart / (2.0 * penalty.width**2))
        self.basis = np.hstack([linear, bumps if penalty.kernel else bumps[:, :0]])
        self.linear, self.columns = linear.shape[1], self.basis.shape[1]
        size = max(len(group.members) for group in groups)
        where = {name: row for row, name in enumerate(names)}
        self.at = np.zeros((len(groups), size), dtype=int)
        self.held = np.zeros((len(groups), size), dtype=bool)
        self.told = np.zeros((len(groups), size))
        for row, group in enumerate(groups):
            count = len(group.members)
            self.at[row, :count] = [where[name] for name in group.members]
            self.held[row, :count] = True
            self.told[row, :count] = np.log(np.clip(group.rates, LOWEST, 1.0))
        self.prior = np.zeros(2 * self.columns + 1)
        self.prior[1] = 2.0  # the logit of `busy` as it is
        self.lowest = np.full(len(self.prior), -np.inf)
        for first in (0, self.columns):
            self.lowest[first + 1 : first + 1 + DEMANDS] = 0.0
        self.highest = np.full(len(self.prior), np.inf)
        self.highest[-1] = np.log(MOST_COST)
        self.strength = self._strength()

    def _strength(self) -> Floats:
        part = np.full(self.columns, self.penalty.bumps)
        part[: self.linear] = self.penalty.weights
        whole = np.sqrt(np.concatenate([part, part, [self.penalty.weights]]))
        return np.asarray(whole * np.sqrt(self.held.sum() / 100.0))

    def rates(self, logits: Floats, logs: Floats, cost: float) -> Floats:
        """Log rates of all groups from each member's latent numbers."""
        share = self.held / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0)))
        weight = np.exp(np.clip(logs, -LIMIT, LIMIT)) * self.held
        inverse = cost * np.exp(-np.clip(logs, -LIMIT, LIMIT))
        taken, time = weight * share, share
        for _ in range(ROUNDS):
            others = taken.sum(axis=1, keepdims=True) - taken
            time = share * (1.0 + inverse * others)
            taken = weight * time / (1.0 - share + time)
        return np.asarray(-np.log(1.0 - share + time))

    def off(self, p: Floats) -> tuple[Floats, Floats]:
        """Residuals of held entries, and their slopes by the vector."""
        n = self.columns
        u, v = (self.basis @ p[:n])[self.at], (self.basis @ p[n : 2 * n])[self.at]
        cost = float(np.exp(p[-1]))
        base = self.rates(u, v, cost)
        slopes = np.zeros((*base.shape, len(p)))
        for member in range(base.shape[1]):
            nudge = np.zeros(base.shape)
            nudge[:, member] = NUDGE
            rows = self.basis[self.at[:, member]][:, None, :]
            by_u = (self.rates(u + nudge, v, cost) - base) / NUDGE
            by_v = (self.rates(u, v + nudge, cost) - base) / NUDGE
            slopes[:, :, :n] += by_u[:, :, None] * rows
            slopes[:, :, n : 2 * n] += by_v[:, :, None] * rows
        slopes[:, :, -1] = (self.rates(u, v, cost * np.exp(NUDGE)) - base) / NUDGE
        return (base - self.told)[self.held], slopes[self.held]

    def loss(self, off: Floats, p: Floats) -> float:
        size = np.abs(off)
        huber = np.where(size <= HUBER, size**2, 2.0 * HUBER * size - HUBER**2)
        return float(huber.sum() + (((p - self.prior) * self.strength) ** 2).sum())

    def minimise(self) -> Floats:
        p, damping = self.prior.copy(), 1e-2
        off, slopes = self.off(p)
        loss = self.loss(off, p)
        for _ in range(STEPS):
            weight = np.minimum(1.0, HUBER / np.maximum(np.abs(off), 1e-12))
            curve = (slopes * weight[:, None]).T @ slopes + np.diag(self.strength**2)
            pull = slopes.T @ (weight * off) + self.strength**2 * (p - self.prior)
            free = np.where(pull > 0.0, p > self.lowest, p < self.highest)
            step = np.zeros(len(p))
            inner = curve[np.ix_(free, free)]
            step[free] = np.linalg.solve(
                inner + damping * np.diag(np.diag(inner) + 1e-9), -pull[free]
            )
            trial = np.clip(p + np.clip(step, -1.0, 1.0), self.lowest, self.highest)
            off_there, slopes_there = self.off(trial)
            there = self.loss(off_there, trial)
            if there < loss:
                done = loss - there < 1e-5 * loss
                p, off, slopes, loss = trial, off_there, slopes_there, there
                damping = max(0.3 * damping, 1e-8)
                if done:
                    break
            else:
                damping *= 6.0
                if damping > 1e8:
                    break
        return p

    def law(self, p: Floats) -> InterferenceLaw:
        """The vector by name."""
        rows = (p[: self.columns], p[self.columns : -1])
        missing = [0.0] * (len(self.points) - self.columns + self.linear)
        return InterferenceLaw(
            tuple(tuple(row[: self.linear].tolist()) for row in rows),
            tuple((*row[self.linear :].tolist(), *missing) for row in rows),
            tuple(tuple(centre) for centre in self.points.tolist()),
            self.penalty.width,
            float(np.exp(p[-1])),
        )
