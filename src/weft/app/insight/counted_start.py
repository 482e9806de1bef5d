"""When a job starts, roughly: jobs in order, each on the GPUs that are free first.

No policy is asked and nothing is placed: what thousands of jobs take is counted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.app.insight.present import SIMULATIONS, Estimate, Present
from weft.core.model.job import JobId
from weft.core.state.table import Floats


def count_start(
    present: Present, order: Sequence[JobId], simulations: int = SIMULATIONS
) -> Estimate | None:
    """When the last of `order` starts, with other remaining times each time; None: not known.

    Never, that is, or at once: it waits beside what is free for it, for something else than GPUs.
    """
    starts = [_count(present, order, seed) for seed in range(simulations)]
    return Estimate(tuple(starts), counted=True) if all(starts) else None


def _count(present: Present, order: Sequence[JobId], seed: int) -> float | None:
    table, remaining = present.table, present.remaining(seed)
    ready = _when_free(present, remaining)
    start: float | None = None
    for job in order:
        row = table.row(job)
        demand = table.jobs[row].demand
        need = max(min(demand.gpus, demand.min), 1)
        fitting = [k for k in demand.kinds or ready if len(ready.get(k, ())) >= need]
        start = None
        if not fitting:
            continue
        best = min(fitting, key=lambda kind: np.partition(ready[kind], need - 1)[need - 1])
        first = np.argpartition(ready[best], need - 1)[:need]
        start = float(ready[best][first].max())
        ready[best][first] = start + float(remaining[row]) * demand.share
    return start


def _when_free(present: Present, remaining: Floats) -> dict[str, Floats]:
    """In how many seconds each GPU is free, by kind."""
    busy: dict[tuple[str, int], float] = {}
    for row, on in enumerate(present.table.allocations):
        for part in on.slices if on is not None else ():
            for gpu in part.gpus:
                busy[part.node, gpu] = max(busy.get((part.node, gpu), 0.0), float(remaining[row]))
    free: dict[str, list[float]] = {kind: [] for kind in present.cluster.kinds}
    for node in present.cluster.nodes:
        free[node.kind] += [busy.get((node.id, gpu), 0.0) for gpu in range(node.gpus)]
    return {kind: np.array(times) for kind, times in free.items()}
