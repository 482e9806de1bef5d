"""Models that predictors fit from time to time, beside the decisions of a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Fit(NamedTuple):
    """A model that is due: `make` gives it in plain values, in any process.

    `ends` is how many jobs had ended.
    """

    ends: int
    make: Callable[[], Any]


class Fits(Protocol):
    """What a predictor fits from time to time, which takes longer than a decision may.

    If `aside` is set someone else asks what is `wanted`, makes it and has it adopted. If not, it
    is made as soon as it is due.
    """

    aside: bool

    def wanted(self) -> Fit | None:
        """The model that is due; None while there is none."""
        ...

    def adopt(self, model: Any) -> None:
        """Go on with a model that was made."""
        ...
