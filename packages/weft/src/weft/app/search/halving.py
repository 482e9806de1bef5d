"""Successive halving without waiting: which trials fell behind, from what all have reported.

Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020). A trial that came
to a rung goes on while it is among the best of those that came there. The verdict depends on the
reported values alone, not on when they came or what was decided before: a service that was
restarted finds the same, and a trial that was put aside may come back as worse ones arrive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.core.model.search import SearchTerms
from weft.frozen import frozen

Curve = Sequence[tuple[float, float]]  # steps and values, in the order in which they came
MOST_RUNGS = 64


@frozen
class Behind:
    """The rung at which a trial fell behind: its value there, and the worst that goes on."""

    step: float
    value: float
    bound: float
    trials: int

    def say(self, metric: str) -> str:
        """The reason, for people."""
        return (
            f"{metric} {self.value:.4g} at step {self.step:g} is behind: of {self.trials} trials "
            f"there, those with {self.bound:.4g} or better go on"
        )


def find_behind(curves: Mapping[str, Curve], search: SearchTerms) -> dict[str, Behind]:
    """The trials that should give way to others, and the first rung at which each fell behind."""
    behind: dict[str, Behind] = {}
    step = search.first
    for _ in range(MOST_RUNGS):
        at = {
            trial: value
            for trial, curve in curves.items()
            if (value := value_at(curve, step)) is not None
        }
        if len(at) < 2:
            break
        order = sorted(at, key=lambda trial: (rank(at[trial], search), trial))
        stay = math.ceil(len(order) / search.eta)
        for trial in order[stay:]:
            behind.setdefault(trial, Behind(step, at[trial], at[order[stay - 1]], len(order)))
        step *= search.eta
    return behind


def value_at(curve: Curve, step: float) -> float | None:
    """The first value that came at this step or a later one; None if none has come."""
    return next((value for at, value in curve if at >= step), None)


def rank(value: float, search: SearchTerms) -> float:
    """A number that is less for a better value, and worst for one that is no number."""
    if math.isnan(value):
        return math.inf
    return -value if search.maximize else value


def best_of(curve: Curve, search: SearchTerms) -> float | None:
    """The best value that a trial reached."""
    return min((value for _, value in curve), key=lambda value: rank(value, search), default=None)
