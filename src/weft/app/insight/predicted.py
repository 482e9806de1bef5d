"""What the scheduler believes of a running job's speed, to be held against what it measures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import isfinite

from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Allocation, Config, Job, JobId
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


# How long a job may still run and whether it may fail, in words, from what is predicted of it.

FEWEST = 2.0  # ends worth: below that there is no estimate to speak of
SCORED = 20
LIKELY, STREAK = 0.6, 3
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def describe_length(predictor: Predictor | None, table: Table, job: JobId, now: float) -> str:
    """Such as "about 40 min (10 min to 3 h), from your last 6 runs of train.py with 4 GPUs".

    With how often such ranges were right, once enough were scored; empty where nobody knows.
    """
    if predictor is None:
        return ""
    row = table.row(job)
    basis = predictor.basis(table.jobs[row])
    if not basis.level or basis.effective < min(FEWEST, basis.count):
        return ""
    keep = table.seq == table.seq[row]
    low, middle, high = predictor.ranges(table.pick(keep), now)[0].tolist()
    if not isfinite(high):
        return ""
    scores = predictor.scores()
    right = f"; {scores.coverage:.0%} of such ranges were right".replace("%", " %")
    text = f"about {in_words(middle)} ({in_words(low)} to {in_words(high)}), from {basis.level}"
    return text + (right if scores.count >= SCORED else "")


def warn_of_failure(predictor: Predictor | None, job: Job) -> str:
    """That a job will probably fail as its like did; empty where that is not likely."""
    if predictor is None:
        return ""
    risk = predictor.risk(job)
    if risk.p_fail < LIKELY or risk.streak < STREAK:
        return ""
    trial = "; try it on one GPU first" if job.demand.gpus > 8 else ""
    after = f"after {in_words(risk.after_s)} on average"
    return f"likely to fail: {risk.streak} in a row did of {risk.key}, {after}{trial}"


def in_words(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h, 5 days."""
    if seconds < 2.0 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2.0 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2.0 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"
