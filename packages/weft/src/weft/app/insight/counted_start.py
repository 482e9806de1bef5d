"""When a job starts, roughly: jobs in order, each on the GPUs that are free first.

No policy is asked and nothing is placed: what thousands of jobs take is counted in milliseconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from weft.app.insight.present import BOUNDLESS, SIMULATIONS, Estimate, Present
from weft.app.insight.purse import Purse
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Allocation, Config, Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import Table

LEAST = 2
MANY = 5_000  # jobs ahead, of which one count says as much as several: their lengths even out


def count_start(
    present: Present, order: Sequence[JobId], purse: Purse = BOUNDLESS
) -> Estimate | None:
    """When the last of `order` starts, with other remaining times each time; None: not known.

    Never, that is, or at once: it waits beside what is free for it, for something else than GPUs.
    Some are counted in any case, more while less than half of `purse` is spent.
    """
    starts: list[float] = []
    least = LEAST if len(order) < MANY else 1
    row_of = {job.id: row for row, job in enumerate(present.table.jobs)}
    rows = [row_of[job] for job in order]
    while len(starts) < least or (
        len(starts) < SIMULATIONS and 0.0 < purse.cpu_s / 2 <= purse.left_s
    ):
        start = _count(present, rows, seed=len(starts))
        if not start:
            return None
        starts.append(start)
    return Estimate(tuple(starts), counted=True)


def _count(present: Present, rows: Sequence[int], seed: int) -> float | None:
    jobs, remaining = present.table.jobs, present.remaining(seed)
    ready = _when_free(present, remaining)
    left = remaining.tolist()
    fits: dict[tuple[int, tuple[str, ...]], list[list[float]]] = {}  # there are always as many
    start: float | None = None
    for row in rows:
        demand = jobs[row].demand
        need = max(min(demand.gpus, demand.min), 1)
        fitting = fits.get((need, demand.kinds))
        if fitting is None:
            able = [k for k in demand.kinds or ready if len(ready.get(k, ())) >= need]
            fitting = fits[need, demand.kinds] = [ready[kind] for kind in able]
        start = None
        if not fitting:
            continue
        times = fitting[0]
        for other in fitting[1:]:
            if other[need - 1] < times[need - 1]:
                times = other
        start = times[need - 1]
        del times[:need]
        end = start + left[row] * demand.share
        at = bisect_left(times, end)
        times[at:at] = [end] * need
    return start


def _when_free(present: Present, remaining: Floats) -> dict[str, list[float]]:
    """In how many seconds each GPU is free, by kind, the first ones first."""
    busy: dict[tuple[str, int], float] = {}
    for row, on in enumerate(present.table.allocations):
        for part in on.slices if on is not None else ():
            for gpu in part.gpus:
                busy[part.node, gpu] = max(busy.get((part.node, gpu), 0.0), float(remaining[row]))
    free: dict[str, list[float]] = {kind: [] for kind in present.cluster.kinds}
    for node in present.cluster.nodes:
        free[node.kind] += [busy.get((node.id, gpu), 0.0) for gpu in range(node.gpus)]
    return {kind: sorted(times) for kind, times in free.items()}


# ---- What the scheduler believes of a running job's speed, to be held against what it measures


def predict_goodput(knowledge: Knowledge, job: Job, on: Allocation, kind: str) -> float | None:
    """Useful samples per second on what it holds, alone there; None where unknown."""
    if knowledge.beliefs is None:
        return None
    table = Table()
    table.add(job, 0)
    config = Config(kind, len(on.slices), on.gpus)
    goodput = float(knowledge.beliefs.goodputs(table, (config,))[0, 0])
    return goodput if math.isfinite(goodput) and goodput > 0.0 else None


def predict_pace(
    knowledge: Knowledge, job: Job, beside: Sequence[Job], on: Allocation, kind: str
) -> float | None:
    """Its speed beside the jobs that share its devices, as a part of that alone: the promise."""
    if not beside:
        return None
    seen = None if knowledge.programs is None else knowledge.programs.slowdown(job, kind, beside)
    if seen is not None:
        return 1.0 / seen
    if knowledge.colocation is None:
        return None
    return float(knowledge.colocation.speeds([job, *beside], kind, on.sharing.discipline)[0])


def read_promise(knowledge: Knowledge, job: Job) -> dict[str, float | None]:
    """The slowdown that a job was promised beside others, and for how long that was broken."""
    programs = knowledge.programs
    promised = job.slowdown if programs is None else programs.promise(job)
    if promised is None:
        return {}
    broken_s = None if programs is None else programs.broken_s(job)
    return {"promised_slowdown": promised, "promise_broken_s": broken_s}
