"""The terms by which a sweep searches: what its trials are compared by, and when they stop."""

from __future__ import annotations

from enum import StrEnum

from weft.frozen import frozen


class SearchKind(StrEnum):
    """The ways to choose the trials of a sweep."""

    RANDOM = "random"
    GRID = "grid"
    ASHA = "asha"  # random, and those that fall behind give way to others
    OPTUNA = "optuna"  # by a sampler of that library, from what earlier trials reached


@frozen
class SearchTerms:
    """The way in which a sweep searches; every trial of it holds the same.

    `metric` is what trials report. Of `eta` trials that came as far as a rung, one goes on; rungs
    are at step `first` and at each `eta` times the step before. `body` is the job file, as JSON,
    where later trials are chosen by what earlier ones reached.
    """

    kind: SearchKind
    metric: str = ""
    maximize: bool = False
    trials: int = 0
    first: float = 1.0
    eta: int = 3
    body: str = ""

    @property
    def halves(self) -> bool:
        """True if trials that fall behind are stopped."""
        return self.kind is SearchKind.ASHA
