"""Jobs that a simulation leaves waiting forever, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.core.model.cluster import Cluster
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Trace
from weft.core.plan.kept_back import find_kept_back
from weft.core.plan.reasons import describe_demand
from weft.core.scheduler import Scheduler
from weft.frozen import frozen
from weft.runtime.deciding.waiting import WaitExplainer, why_kept_back

SHOWN = 5  # reasons, and jobs of each


@frozen
class StuckJobs:
    """The number of jobs that never start for this reason; `jobs` are the first of them."""

    count: int
    because: str
    jobs: tuple[JobId, ...]


def count_never(why: Mapping[JobId, str]) -> Sequence[StuckJobs]:
    """Jobs by reason, the most frequent first; what is rare is counted together."""
    by_reason: defaultdict[str, list[JobId]] = defaultdict(list)
    for job, because in why.items():
        by_reason[because].append(job)
    most = sorted(by_reason.items(), key=lambda group: -len(group[1]))
    stuck = [StuckJobs(len(jobs), why, tuple(jobs[:SHOWN])) for why, jobs in most[:SHOWN]]
    rest = [job for _, jobs in most[SHOWN:] for job in jobs]
    if rest:
        stuck.append(StuckJobs(len(rest), "other reasons", tuple(rest[:SHOWN])))
    return stuck


def why_never(scheduler: Scheduler) -> dict[JobId, str]:
    """Of jobs that are left: what the policy says, or what is plain to see."""
    state, about = scheduler.state, scheduler.policy.about
    scheduler.memory = None  # so that it says again what it said before
    reasons = scheduler.policy.decide(scheduler.view(0.0)).reasons
    waits = WaitExplainer(
        state.free, state.cluster.nodes, about, about.name, 0.0, table=state.table
    )
    jobs = zip(state.table.jobs, find_kept_back(state.table), strict=True)
    return {
        job.id: reasons.get(job.id)
        or (why_kept_back(job, state.table, parallel=bool(kept)) or waits.explain_wait(job)).text
        for job, kept in jobs
        if job.id not in state.table.suspended
    }


def split_too_large(trace: Trace, cluster: Cluster) -> tuple[Trace, dict[JobId, str]]:
    """Jobs that the cluster could run, and why it never could run the others."""
    never = {
        job.id: f"asks for {describe_demand(job.demand, job.demand.min, cluster.kinds)}, "
        "more than there are"
        for job, _ in trace
        if job.demand.min > _room(job, cluster)
    }
    kept = tuple(pair for pair in trace.jobs if pair[0].id not in never)
    return replace(trace, jobs=kept), never


def _room(job: Job, cluster: Cluster) -> int:
    kinds = job.demand.kinds or cluster.kinds
    return max((cluster.gpus_by_kind.get(kind, 0) for kind in kinds), default=0)
