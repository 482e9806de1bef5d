"""Numbers that come one after the other and are read together."""

from __future__ import annotations

import numpy as np

from weft.core.state.table import Floats


class Growing:
    """A float column that grows at the end."""

    def __init__(self, values: Floats | None = None) -> None:
        self._cells: Floats = np.zeros(64) if values is None or not len(values) else values.copy()
        self._size = 0 if values is None else len(values)

    @property
    def values(self) -> Floats:
        """All of them, in order."""
        return self._cells[: self._size]

    def append(self, value: float) -> None:
        """One more at the end."""
        if self._size == len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros(self._size)])
        self._cells[self._size] = value
        self._size += 1
