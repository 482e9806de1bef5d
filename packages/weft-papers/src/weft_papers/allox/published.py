"""Price AlloX's sample runs by the second: `python -m weft_papers.allox.published [--seconds 60]`.

The paper estimates a job's length on each kind from two short runs of it there, which take a GPU
and are waited for; ours takes the predictor's. Gavel's jobs on 12 GPUs of each of three kinds, one
GPU each: as it is, and with two runs on each kind before every job, as jobs that it comes after.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import numpy as np

import weft
from weft.core.model.job import After, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.traces.options import DrawRequest
from weft.traces.read import find

KINDS = ("v100", "p100", "k80")
CLUSTER = "+".join(f"3x4:{kind}" for kind in KINDS)
JOBS = 120
SAMPLE = "sample run"
RUNS = 2  # of each job on each kind


def main() -> int:
    """Print mean completion times; fail if sample runs cost nothing, for then none took place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one sample run")
    args = parser.parse_args()
    plain = draw()
    without = mean_h(plain)
    sampled = mean_h(with_samples(plain, args.seconds))
    work_h = sum(truth.length for _, truth in plain) / 3600.0
    print(f"{JOBS} jobs, {work_h:.0f} GPU-hours on the kind they were drawn for: {without:.2f} h")
    more = 100.0 * (sampled / without - 1.0)
    runs = f"{RUNS} runs of {args.seconds:g} s on each kind before every job"
    print(f"{runs}: {sampled:.2f} h, {more:.1f} % more")
    return 0 if sampled > without else 1


def draw() -> Trace:
    """Gavel's law, with one GPU for every job."""
    return find("gavel", DrawRequest(jobs=JOBS, gpus=12 * len(KINDS), max_gpus=1, kinds=KINDS))


def with_samples(trace: Trace, seconds: float) -> Trace:
    """Every job after runs of so many seconds on each kind."""
    rows = []
    for job, truth in trace:
        names = [JobId(f"{job.id}-{kind}-{n}") for kind in KINDS for n in range(RUNS)]
        for name in names:
            demand = Demand(1, kinds=(name.split("-")[-2],))
            run = Job(name, job.submitted, demand, user=job.user, app=SAMPLE)
            rows.append((run, Truth(seconds)))
        rows.append((replace(job, after=After(ok=tuple(names))), truth))
    return replace(trace, jobs=tuple(rows))


def mean_h(trace: Trace) -> float:
    """Mean hours from the submission of a job, not of a sample run, to its end."""
    outcome = weft.simulate(trace, "allox", CLUSTER).outcomes["allox"][0]
    took = dict(zip(outcome.per_job.id, outcome.per_job.jct_s, strict=True))
    return float(np.mean([took[job.id] for job, _ in trace if job.app != SAMPLE])) / 3600.0


if __name__ == "__main__":
    sys.exit(main())
