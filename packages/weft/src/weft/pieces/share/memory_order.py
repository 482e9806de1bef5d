"""The order in which jobs that share devices get device memory that becomes free."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from weft.core.model.job import Allocation, JobId, MemoryPlace, NodeId
from weft.core.plan.view import View
from weft.core.state.cells import Floats

SHORT_S = 16.0  # of what is left: shorter jobs count as alike, others by doublings
LONGEST = 1e6  # times that: longer ones, and those without an end, count as alike


def order_memory(
    view: View,
    changes: Mapping[JobId, Allocation | None],
    by: Callable[[View], Floats] | None = None,
) -> dict[JobId, MemoryPlace]:
    """Return places of the jobs that share devices after `changes`: by priority, then `by`.

    Of jobs that are alike the one goes first that has waited longest. Empty where nothing is seen
    of programs, so that no allocation can wait.
    """
    if view.knowledge.programs is None or not (rows := _find_sharing(view, changes)):
        return {}
    key = np.zeros(len(view.table)) if by is None else by(view)
    return {view.job(row).id: (-view.job(row).priority, float(key[row])) for row in rows}


def doublings_left(view: View) -> Floats:
    """Return the doublings of `SHORT_S` in what is predicted to be left of each row.

    Where nothing predicts, what it ran counts: most jobs that have run for long go on for long.
    """
    return doublings(view.ran() if view.knowledge.predictor is None else view.remaining())


def doublings(seconds: Floats) -> Floats:
    """Return the doublings of `SHORT_S` in these seconds: an order that seldom changes."""
    count: Floats = np.floor(np.log2(np.clip(seconds / SHORT_S, 1.0, LONGEST)))
    return count


def _find_sharing(view: View, changes: Mapping[JobId, Allocation | None]) -> list[int]:
    """Rows that have a device with another one, after some changes."""
    residents: dict[tuple[NodeId, int], list[int]] = {}
    for row, held in enumerate(view.table.allocations):
        on = changes.get(view.job(row).id, held)
        for part in () if on is None else on.slices:
            for gpu in part.gpus:
                residents.setdefault((part.node, gpu), []).append(row)
    return sorted({row for rows in residents.values() if len(rows) > 1 for row in rows})
