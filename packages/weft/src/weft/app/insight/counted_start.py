"""Likely start of a job, its time limit and its chance to fail, from predictions.

No policy is asked and nothing is placed: what thousands of jobs take is counted in milliseconds.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from math import isfinite

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.present import BOUNDLESS, SIMULATIONS, Estimate, Present
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Allocation, Config, Job, JobId
from weft.core.plan.reasons import GPU
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable

LEAST = 2
MANY = 5_000  # jobs ahead, of which one count says as much as several: their lengths even out


def count_start(
    present: Present, order: Sequence[JobId], budget: CpuBudget = BOUNDLESS
) -> Estimate | None:
    """The start of the last of `order`, with other remaining times each time; None: not known.

    Never, that is, or at once: it waits beside what is free for it, for something else than GPUs.
    Some are counted in any case, more while less than half of `budget` is spent.
    """
    starts: list[float] = []
    least = LEAST if len(order) < MANY else 1
    row_of = {job.id: row for row, job in enumerate(present.table.jobs)}
    rows = [row_of[job] for job in order]
    while len(starts) < least or (
        len(starts) < SIMULATIONS and 0.0 < budget.cpu_s / 2 <= budget.left_s
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
    table = JobTable()
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


FEWEST = 2.0  # ends worth: below that there is no estimate to speak of
SCORED = 20
LIKELY, STREAK = 0.6, 3
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def describe_length(
    predictor: Predictor | None, table: JobTable, job: JobId, now: float, device: str = GPU
) -> str:
    """Such as "about 40 min (10 min to 3 h), from your last 6 runs of train.py with 4 GPUs".

    With how often such ranges were right, once enough were scored; empty where unknown.
    `device` is what devices are called: CPU slots where there are no GPUs.
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
    from_what = _of_devices(basis.level, device)
    least, most = in_words(low), in_words(high)
    around = "" if least == most else f" ({least} to {most})"
    text = f"about {in_words(middle)}{around}, from {from_what}"
    return text + (right if scores.count >= SCORED else "")


def warn_of_failure(predictor: Predictor | None, job: Job, device: str = GPU) -> str:
    """Warn that a job will probably fail as similar jobs did; empty where that is not likely."""
    if predictor is None:
        return ""
    risk = predictor.risk(job)
    if risk.p_fail < LIKELY or risk.streak < STREAK:
        return ""
    trial = f"; try it on one {device} first" if job.demand.gpus > 8 else ""
    after = f"after {in_words(risk.after_s)} on average"
    which = "all" if risk.streak >= risk.count else f"the newest {risk.streak}"
    return f"likely to fail: {which} of {_of_devices(risk.key, device)} failed, {after}{trial}"


def _of_devices(words: str, device: str) -> str:
    """The words of predictors about earlier jobs, whose devices they call GPUs."""
    return re.sub(r"\bwith (\S+) GPU(s?)$", rf"with \1 {device}\2", words)


def in_words(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h, 5 days."""
    if seconds < 2.0 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2.0 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 2.0 * DAY:
        return f"{seconds / HOUR:.0f} h"
    return f"{seconds / DAY:.0f} days"
