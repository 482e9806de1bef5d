"""Step-time models fitted to what jobs measured: compiled where Weft was, each set of rows once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from weft.base.step_fit import FitRow, fit_rows
from weft.base.step_times import StepTime
from weft.native import compiled

_fit_rows = compiled(fit_rows)


def fit(rows: Iterable[FitRow]) -> StepTime:
    """The parameters that explain the rows best; the order of rows does not matter."""
    return _fit(tuple(sorted(set(rows))))


@lru_cache(maxsize=65_536)
def _fit(rows: tuple[FitRow, ...]) -> StepTime:
    return StepTime(*_fit_rows(rows))
