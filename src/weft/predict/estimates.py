"""Estimates of total length made once per job, when it is first seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.codec.columns import pack_floats, unpack_floats
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import Table


class Estimates:
    """A column of estimates by submission number, filled as jobs appear."""

    def __init__(self, estimate: Callable[[Job], float]) -> None:
        self._estimate = estimate
        self._known: Floats = np.full(64, np.nan)

    def save(self) -> Any:
        """The estimates that were made."""
        return pack_floats(self._known)

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        self._known = unpack_floats(saved)

    def remaining(self, table: Table, now: float, executed: Floats | None = None) -> Floats:
        """Estimated length less `executed`, or else less the time it ran; never below zero."""
        seq = table.seq.astype(np.intp)
        if len(seq) and seq[-1] >= len(self._known):
            grown = np.full(max(2 * len(self._known), int(seq[-1]) + 1), np.nan)
            grown[: len(self._known)] = self._known
            self._known = grown
        total = self._known[seq]
        unknown = np.flatnonzero(np.isnan(total))
        if len(unknown):
            made = np.array([self._estimate(table.jobs[row]) for row in unknown.tolist()])
            total[unknown] = made  # what is unknown now may be known later
            self._known[seq[unknown]] = np.where(np.isfinite(made), made, np.nan)
        return np.maximum(total - (table.ran(now) if executed is None else executed), 0.0)
