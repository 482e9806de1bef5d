"""Twenty jobs written by hand: gangs, a shared GPU, a kind, retries, failures, a tie at zero."""

from __future__ import annotations

from dataclasses import replace

from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import LoadReport, Trace, Truth
from weft.traces.draft import Pair, Workload
from weft.traces.options import DrawRequest

CLUSTER, GPUS = "2x4:v100", 8
# Submission, GPUs, length, user, final state, points of failure; all in seconds.
ROWS: tuple[tuple[float, float, float, str, str, tuple[float, ...]], ...] = (
    (0, 1, 300, "ada", "completed", ()),
    (0, 4, 900, "bob", "completed", ()),
    (0, 2, 600, "ada", "completed", ()),
    (60, 1, 120, "cyd", "completed", ()),
    (90, 0.5, 480, "cyd", "completed", ()),
    (90, 0.5, 480, "cyd", "completed", ()),
    (180, 8, 600, "bob", "completed", ()),
    (300, 1, 45, "ada", "failed", ()),
    (360, 2, 1200, "dee", "completed", (400.0,)),
    (420, 1, 60, "ada", "completed", ()),
    (600, 4, 300, "bob", "cancelled", ()),
    (720, 0.25, 900, "cyd", "completed", ()),
    (900, 1, 1800, "dee", "completed", ()),
    (1200, 2, 240, "ada", "completed", ()),
    (1500, 1, 30, "cyd", "failed", ()),
    (1800, 4, 600, "dee", "completed", ()),
    (2100, 1, 90, "ada", "completed", ()),
    (2400, 6, 420, "bob", "completed", ()),
    (3000, 1, 600, "cyd", "completed", ()),
    (3600, 2, 150, "ada", "completed", ()),
)
# The job that insists on a kind.
CHOOSY, KIND = 3, "v100"


def generate(request: DrawRequest) -> Trace:
    """Return twenty jobs, equal for every seed; `jobs`, `gpus` and `load` cut and rescale them."""
    limit = min(request.gpus or GPUS, request.max_gpus or GPUS)
    picky = not request.gpus or KIND in request.kinds
    rows = list(enumerate(ROWS))[: request.jobs or len(ROWS)]
    pairs = [_pair(i, row, limit, picky) for i, row in rows]
    trace = Trace("tiny-20", tuple(pairs), CLUSTER, report=LoadReport(len(pairs), len(pairs)))
    span = pairs[-1][0].submitted
    if request.load is None or not span:
        return trace
    factor = trace.load(request.gpus or GPUS) / request.load
    moved = ((replace(job, submitted=job.submitted * factor), truth) for job, truth in pairs)
    return replace(trace, jobs=tuple(moved))


def _pair(
    index: int,
    row: tuple[float, float, float, str, str, tuple[float, ...]],
    limit: int,
    picky: bool,
) -> Pair:
    when, gpus, length, user, state, failures = row
    kinds = (KIND,) if picky and index == CHOOSY else ()
    ask = (
        Demand(1, share=gpus, kinds=kinds)
        if gpus < 1
        else Demand(min(int(gpus), limit), kinds=kinds)
    )
    job = Job(JobId(f"tiny-{index:02d}"), float(when), ask, tenant="tiny", user=user)
    return job, Truth(float(length), failures, state)


TINY = Workload("tiny-20", "twenty jobs written by hand, for a first look", CLUSTER, generate)
