"""What the scheduler believes of a running job's speed, to be held against what it measures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Allocation, Config, Job
from weft.core.state.table import Table


def predict_goodput(knowledge: Knowledge, job: Job, on: Allocation, kind: str) -> float | None:
    """Useful samples a second on what it holds, alone there; None where nobody knows."""
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
