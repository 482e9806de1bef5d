"""The jobs that one decision may move, in order, on a cluster that they have left."""

from __future__ import annotations

import numpy as np

from weft.core.free import Free
from weft.core.model import Job
from weft.core.table import Floats, Rows
from weft.core.view import View

RESOURCES = 4


class Queue:
    """Rows by `key`, which Muri ranks by; their devices are given back, as of `emptied`."""

    def __init__(self, view: View, rows: Rows, key: Floats, size: int) -> None:
        self.view, self.key, self.size = view, key, size
        self.free: Free = view.free
        self.order = self._rank(rows)
        for row in rows:
            if (on := view.allocation(row)) is not None:
                self.free.give(on)
        self.emptied = self.free.mark()

    def job(self, row: int) -> Job:
        """The job of a row."""
        return self.view.job(row)

    def most(self, row: int) -> int:
        """Jobs on a device at most: a part of a device is nobody else's, nor is a shy job's."""
        job = self.job(row)
        return self.size if job.shareable and job.demand.share >= 1.0 else 1

    def _rank(self, rows: Rows) -> Rows:
        # Equal ranks: larger gangs first, and behind them those that have only just come.
        table = self.view.table
        new = table.submitted >= self.view.now
        size = np.where(new, 0.0, -table.gpus)
        among = np.zeros(len(table), dtype=bool)
        among[rows] = True
        return self.view.ranked(self.key, new.astype(float), size, among=among)
