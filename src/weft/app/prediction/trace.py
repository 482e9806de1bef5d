"""The jobs of a trace that predictors are compared on."""

from __future__ import annotations

from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.core.model.trace import Truth
from weft.core.spec.registry import names
from weft.traces.find import find
from weft.traces.options import Options, Request

FEWEST = 50


def read_jobs(
    workload: str, most: int, seed: int, options: Options | None = None
) -> list[tuple[Job, Truth]]:
    """The first jobs with GPUs of a built-in workload or a trace file, in order of submission."""
    if workload in names("trace") and not Path(workload).exists():
        trace = find(workload, Request(jobs=most, seed=seed))
    else:
        trace = find(workload, None, options)
    jobs = [(job, truth) for job, truth in trace if job.demand.gpus > 0][:most]
    if len(jobs) < FEWEST:
        raise InvalidConfig(
            f"{workload} has {len(jobs)} jobs with GPUs",
            hint=f"predictors are compared on {FEWEST} or more",
        )
    return jobs
