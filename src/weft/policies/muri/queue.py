"""The jobs that one decision may move, in order, on a cluster that they have left."""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Job
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.table import Floats, Rows
from weft.pieces.place.gangs import Placer

RESOURCES = 4


class Queue:
    """Rows in order, and the `key` they are ranked by; groups go where `place` says.

    Their devices are given back, as of `emptied`.
    """

    def __init__(self, view: View, order: Rows, key: Floats, size: int, place: Placer) -> None:
        self.view, self.key, self.size, self.place = view, key, size, place
        self.free: Capacity = view.free
        self.order = order
        for row in np.sort(order):
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
