"""From physics and counts to an outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from weft.core.model.cluster import Cluster
from weft.core.model.job import Tier
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.formulas.fairness.shares import Stretches, window_edges
from weft.formulas.fragmentation import HeldDevices, Idle, count_idle, typical_classes
from weft.formulas.metrics import measure
from weft.formulas.node_sleeper import NodeSleeper
from weft.formulas.run import LoanHistory, NodesSlept, RunOutcome
from weft.formulas.statistics import level, percentile
from weft.sim.loans import LoanCounts
from weft.sim.milestones import worth
from weft.sim.physics import Physics
from weft.sim.result import ClusterSeries, Outcome, PerJob, TimelineBars, UserShare

SERIES_POINTS = 600
SHARE_POINTS = 120  # fewer: each stands for the mean of a while
SHARE_USERS = 12
TIMELINE_BARS = 4000
TIMELINE_GPUS = 128
LENT = -1  # in the place of a node that is not the cluster's own


@dataclass(slots=True)
class RunCounts:
    """Counts of a run besides the jobs themselves."""

    decisions: int = 0
    events: int = 0
    preemptions: int = 0
    rejected: int = 0
    decide_s: list[float] = field(default_factory=list)
    loans: LoanCounts | None = None
    nodes_slept: NodesSlept | None = None


def count_slept(sleeper: NodeSleeper, now: float) -> NodesSlept:
    """The savings of nodes that slept, and what that cost."""
    return NodesSlept(
        sleeper.node_seconds(now),
        sleeper.wake_ups,
        sleeper.woken,
        sleeper.delay_s,
        sleeper.joules(now),
    )


def collect(
    policy: str,
    predictor: str,
    physics: Physics,
    counts: RunCounts,
    cluster: Cluster,
    wall_s: float,
    weights: Mapping[str, float] | None = None,
) -> Outcome:
    """Everything people ask of a finished simulation; `weights` are those of users and tenants."""
    jobs = [job for job, _ in physics.trace]
    submit = np.array([job.submitted for job in jobs], dtype=float)
    need = np.array([job.demand.gpus * job.demand.share for job in jobs])
    held = _held(physics)
    run = _run(physics, counts, cluster, submit, need, held, weights or {})
    per_job = PerJob(
        id=tuple(str(job.id) for job in jobs),
        submit_s=submit,
        start_s=physics.first_start,
        end_s=physics.ended_at,
        restarts=np.maximum(physics.starts - 1, 0).astype(float),
        gpu_s=physics.gpu_s,
        gpus=need,
        ftf=_with_gaps(run.fairness, run.done),
        static_ftf=_with_gaps(run.static_fairness, run.done),
        users=tuple(job.user for job in jobs),
        models=tuple(job.model for job in jobs),
        kinds=tuple("/".join(job.demand.kinds) for job in jobs),
        held=replace(held, gpus=held.gpus * _firm(physics)),
    )
    milliseconds = 1e3 * np.array(counts.decide_s)
    return Outcome(
        policy=policy,
        predictor=predictor,
        metrics=measure(run),
        decide_ms={
            "p50": round(percentile(milliseconds, 0.50), 4),
            "p95": round(percentile(milliseconds, 0.95), 4),
            "max": round(float(milliseconds.max(initial=0.0)), 4),
        },
        wall_s=round(wall_s, 3),
        per_job=per_job,
        series=_series(physics, submit, held),
        timeline=draw_timeline(physics, cluster),
        shares=_user_shares(run),
    )


def _held(physics: Physics) -> Stretches:
    runs = physics.runs
    return Stretches(
        np.array([run.seq for run in runs], dtype=np.intp),
        np.array([run.start for run in runs]),
        np.array([run.end for run in runs]),
        np.array([run.on.counted_gpus for run in runs]),
    )


def _run(
    physics: Physics,
    counts: RunCounts,
    cluster: Cluster,
    submit: Floats,
    need: Floats,
    held: Stretches,
    weights: Mapping[str, float],
) -> RunOutcome:
    utility, admitted = worth(physics.trace, physics.first_start, physics.ended_at)
    return RunOutcome(
        submitted=submit,
        ended=physics.ended_at,
        ran_s=physics.ran_s,
        length=physics.length,
        need=need,
        gpu_s=physics.gpu_s,
        starts=physics.starts,
        gpus=cluster.gpus,
        owners=[job.owner for job, _ in physics.trace],
        tenants=[job.tenant for job, _ in physics.trace],
        held=held,
        weights=weights,
        preemptions=counts.preemptions - physics.resizes,
        decisions=counts.decisions,
        utility=utility,
        admitted=admitted,
        reached=physics.marks.reached(),
        loaned=None if counts.loans is None else _loaned(counts.loans, physics),
        idle=_idle(physics, cluster, submit, held),
        nodes_slept=counts.nodes_slept,
        deadline=np.array([job.deadline for job, _ in physics.trace], dtype=float),
        spot=np.array([job.spot for job, _ in physics.trace], dtype=bool),
    )


def _firm(physics: Physics) -> Bools:
    """Stretches that were promised: jobs that only fill gaps do not count as holding."""
    tiers = [run.on.sharing.tier for run in physics.runs]
    return np.array([tier is Tier.GUARANTEED for tier in tiers], dtype=bool)


def _idle(physics: Physics, cluster: Cluster, submit: Floats, held: Stretches) -> Idle:
    """GPU time that no job held; jobs that only fill gaps do not count as holding.

    Machines that are lent come and go, and are left out.
    """
    ons, firm = [run.on for run in physics.runs], _firm(physics)
    parts = [on.slices for on in ons]
    counts = np.array([len(slices) for slices in parts], dtype=np.intp)
    slices = list(chain.from_iterable(parts))
    index = cluster.index
    of_run = np.repeat(np.arange(len(ons)), counts)
    node = np.array([index.get(part.node, LENT) for part in slices], dtype=np.intp)
    everything = HeldDevices(
        node,
        held.start[of_run],
        held.end[of_run],
        np.array([len(part.gpus) for part in slices], dtype=float),
        np.array([on.sharing.share for on in ons])[of_run],
        [part.gpus for part in slices],
    )
    counted = firm[of_run] & (node != LENT)
    end = float(held.end.max(initial=0.0))
    return count_idle(
        [node.kind for node in cluster.nodes],
        [node.gpus for node in cluster.nodes],
        everything if counted.all() else everything.select_rows(counted),
        (min(float(submit.min()), end), end),
        typical_classes(job.demand for job, _ in physics.trace),
    )


def _loaned(counts: LoanCounts, physics: Physics) -> LoanHistory:
    """The history of loans; loaned nodes are those that loans name."""
    used = sum(
        (run.end - run.start) * len(part.gpus) * run.on.sharing.share
        for run in physics.runs
        for part in run.on.slices
        if part.node in counts.nodes
    )
    return LoanHistory(counts.gpu_s, used, counts.returned, counts.stopped, counts.scaled_in)


def _with_gaps(values: Floats, done: Bools) -> Floats:
    """Values of the finished in the rows of all jobs, NaN for the others."""
    whole = np.full(len(done), np.nan)
    whole[done] = values
    return whole


def _user_shares(run: RunOutcome) -> tuple[UserShare, ...]:
    """The users that wanted most, with their shares over time; the largest first."""
    begin, end = run.span
    if end <= begin:
        return ()
    length = (end - begin) / SHARE_POINTS
    shares = run.shares_at(window_edges(begin, end, length, SHARE_POINTS))
    middle = (shares.edges[1:] + shares.edges[:-1]) / 2.0
    width = np.diff(shares.edges)
    largest = np.argsort(-shares.wanted.sum(axis=1), kind="stable")[:SHARE_USERS]
    return tuple(
        UserShare(
            shares.users[i],
            float(shares.weights[i]),
            middle,
            shares.entitled[i] / width,
            shares.received[i] / width,
        )
        for i in largest.tolist()
    )


def _series(physics: Physics, submit: Floats, held: Stretches) -> ClusterSeries:
    if not physics.runs:
        empty = np.zeros(0)
        return ClusterSeries(empty, empty, empty)
    start, end, used = held.start, held.end, held.gpus
    at = np.linspace(float(submit.min()), float(end.max()), SERIES_POINTS)
    ones = np.ones(len(start))
    ended = physics.ended_at[~np.isnan(physics.ended_at)]
    active = level(
        np.concatenate([submit, ended]),
        np.concatenate([np.ones(len(submit)), -np.ones(len(ended))]),
        at,
    )
    both = np.concatenate([start, end])
    running = level(both, np.concatenate([ones, -ones]), at)
    return ClusterSeries(at, active - running, level(both, np.concatenate([used, -used]), at))


def draw_timeline(physics: Physics, cluster: Cluster) -> TimelineBars:
    """Jobs on GPUs by time, for runs small enough to look at."""
    if cluster.gpus > TIMELINE_GPUS or len(physics.runs) > TIMELINE_BARS:
        return TimelineBars()
    if sum(run.on.gpus for run in physics.runs) > TIMELINE_BARS:
        return TimelineBars()
    return TimelineBars.of(
        (part.node, gpu, physics.trace.jobs[run.seq][0].id, run.start, run.end)
        for run in physics.runs
        for part in run.on.slices
        for gpu in part.gpus
    )
