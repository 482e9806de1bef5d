"""From physics and counts to an outcome."""

from __future__ import annotations

import numpy as np

from weft.core.cluster import Cluster
from weft.core.table import Floats
from weft.formulas.metrics import Run, measure
from weft.formulas.statistics import level, percentile
from weft.sim.driver import Counts
from weft.sim.milestones import worth
from weft.sim.physics import Physics
from weft.sim.result import Bar, Outcome, PerJob, Series

SERIES_POINTS = 600
TIMELINE_BARS = 4000
TIMELINE_GPUS = 128


def collect(
    policy: str, predictor: str, physics: Physics, counts: Counts, cluster: Cluster, wall_s: float
) -> Outcome:
    """Everything people ask of a finished simulation."""
    jobs = [job for job, _ in physics.trace]
    submit = np.array([job.submitted for job in jobs])
    need = np.array([job.demand.gpus * job.demand.share for job in jobs])
    per_job = PerJob(
        tuple(str(job.id) for job in jobs),
        submit,
        physics.first_start,
        physics.ended_at,
        np.maximum(physics.starts - 1, 0).astype(float),
        physics.gpu_s,
        need,
    )
    milliseconds = 1e3 * np.array(counts.decide_s)
    return Outcome(
        policy,
        predictor,
        measure(_run(physics, counts, cluster, submit, need)),
        {
            "p50": round(percentile(milliseconds, 0.50), 4),
            "p95": round(percentile(milliseconds, 0.95), 4),
            "max": round(float(milliseconds.max(initial=0.0)), 4),
        },
        round(wall_s, 3),
        per_job,
        _series(physics, submit),
        _timeline(physics, cluster),
    )


def _run(physics: Physics, counts: Counts, cluster: Cluster, submit: Floats, need: Floats) -> Run:
    utility, admitted = worth(physics.trace, physics.first_start, physics.ended_at)
    return Run(
        submit,
        physics.ended_at,
        physics.ran_s,
        physics.length,
        need,
        physics.gpu_s,
        physics.starts,
        cluster.gpus,
        counts.preemptions,
        counts.decisions,
        utility,
        admitted,
        physics.marks.reached(),
    )


def _series(physics: Physics, submit: Floats) -> Series:
    runs = physics.runs
    if not runs:
        empty = np.zeros(0)
        return Series(empty, empty, empty)
    start, end = np.array([r.start for r in runs]), np.array([r.end for r in runs])
    used = np.array([r.on.gpus * r.on.sharing.share for r in runs])
    at = np.linspace(float(submit.min()), float(end.max()), SERIES_POINTS)
    ones = np.ones(len(runs))
    ended = physics.ended_at[~np.isnan(physics.ended_at)]
    active = level(
        np.concatenate([submit, ended]),
        np.concatenate([np.ones(len(submit)), -np.ones(len(ended))]),
        at,
    )
    both = np.concatenate([start, end])
    running = level(both, np.concatenate([ones, -ones]), at)
    return Series(at, active - running, level(both, np.concatenate([used, -used]), at))


def _timeline(physics: Physics, cluster: Cluster) -> tuple[Bar, ...]:
    """Who held which GPU when, for runs small enough to look at."""
    bars = sum(run.on.gpus for run in physics.runs)
    if cluster.gpus > TIMELINE_GPUS or bars > TIMELINE_BARS:
        return ()
    return tuple(
        Bar(part.node, gpu, physics.trace.jobs[run.seq][0].id, run.start, run.end)
        for run in physics.runs
        for part in run.on.slices
        for gpu in part.gpus
    )
