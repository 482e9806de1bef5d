"""Successive halving without waiting: which trials fell behind, from what all have reported.

Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020). A trial that came
to a rung goes on while it is among the best of those that came there. The verdict depends on the
reported values alone, not on when they came or what was decided before: a service that was
restarted finds the same, and a trial that was put aside may come back as worse ones arrive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from weft.core.model.search import SearchTerms
from weft.frozen import frozen

Curve = Sequence[tuple[float, float]]  # steps and values, in the order in which they came
MOST_RUNGS = 64
T = TypeVar("T", bound=str)


@frozen
class Behind:
    """The rung at which a trial fell behind: its value there, and the worst that goes on."""

    step: float
    value: float
    bound: float
    trials: int

    def say(self, metric: str) -> str:
        return (
            f"{metric} {self.value:.4g} at step {self.step:g} is behind: of {self.trials} trials "
            f"there, those with {self.bound:.4g} or better go on"
        )


def find_behind(reached: Mapping[T, Sequence[float]], search: SearchTerms) -> dict[T, Behind]:
    """The trials that should give way to others, and the first rung at which each fell behind.

    `reached` has the values of each trial at the rungs that it came to.
    """
    behind: dict[T, Behind] = {}
    for place, step in enumerate(rungs(search)):
        at = {trial: values[place] for trial, values in reached.items() if len(values) > place}
        if len(at) < 2:
            break
        order = sorted(at, key=lambda trial: (rank(at[trial], search), trial))
        stay = math.ceil(len(order) / search.eta)
        for trial in order[stay:]:
            if trial not in behind:
                behind[trial] = Behind(step, at[trial], at[order[stay - 1]], len(order))
    return behind


def rungs(search: SearchTerms) -> list[float]:
    """The steps at which trials are compared."""
    steps = [search.first]
    while len(steps) < MOST_RUNGS:
        steps.append(steps[-1] * search.eta)
    return steps


def values_at(curve: Curve, steps: Sequence[float]) -> tuple[float, ...]:
    """The first value that came at each of the steps or a later one, as far as the curve goes.

    `steps` are in order, so that each point is looked at once, however many steps there are.
    """
    values: list[float] = []
    for at, value in curve:
        while len(values) < len(steps) and at >= steps[len(values)]:
            values.append(value)
    return tuple(values)


def rank(value: float, search: SearchTerms) -> float:
    """A number that is less for a better value, and worst for one that is no number."""
    if math.isnan(value):
        return math.inf
    return -value if search.maximize else value


def best_of(curve: Curve, search: SearchTerms) -> float | None:
    """The best value that a trial reached."""
    return min((value for _, value in curve), key=lambda value: rank(value, search), default=None)
