"""The log's own past under another policy: its jobs replayed in the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from weft.app.simulate.wiring import wire
from weft.app.simulate.world import build_replayed_world
from weft.core.cluster import Cluster
from weft.core.errors import InvalidConfig
from weft.core.model import Job
from weft.core.policy import Policy
from weft.core.registry import Described, build
from weft.core.trace import Trace, Truth
from weft.runtime.ledger import CANCELLED, JobRecord

MOST_JOBS = 20_000
HOUR = 3600.0
SHORTEST_S = 1.0


@dataclass(frozen=True, slots=True)
class Compared:
    """Metrics of each policy on the same jobs, by the names of the result contract."""

    policies: Mapping[str, Mapping[str, float]]
    jobs: int
    hours: float
    note: str


def what_if(
    records: Iterable[JobRecord],
    cluster: Cluster,
    policies: Mapping[str, Described],
    now: float,
    *,
    hours: float | None = None,
    guess_s: float = 600.0,
) -> Compared:
    """Replay the jobs of a ledger under each policy, given by what it is to be called.

    Both are simulated, so that the difference is the policy's and not the simulator's. Jobs that
    were cancelled before they ran are left out; of unfinished ones the length is guessed.
    """
    trace, guessed = trace_of(records, now, hours=hours, guess_s=guess_s)
    if not trace.jobs:
        raise InvalidConfig(
            "the log has no jobs to replay", hint="submit some, or ask for more hours"
        )
    trace = _runnable(trace, cluster)
    found = {
        name: simulate(trace, cluster, build("policy", spec)) for name, spec in policies.items()
    }
    last, first = trace.jobs[-1][0].submitted, trace.jobs[0][0].submitted
    note = f"{len(trace)} jobs simulated under each policy; speeds in proportion to GPUs"
    if guessed:
        note += f"; {guessed} have not finished, their lengths are guessed"
    return Compared(found, len(trace), (last - first) / HOUR, note)


def trace_of(
    records: Iterable[JobRecord], now: float, *, hours: float | None, guess_s: float
) -> tuple[Trace, int]:
    """The ledger's jobs with the work they did, and how many lengths are guesses."""
    since = -np.inf if hours is None else now - hours * HOUR
    chosen = [one for one in records if one.submitted >= since and _counts(one)][-MOST_JOBS:]
    done = [_work(one, now) for one in chosen if one.outcome]
    typical = float(np.median(done)) if done else guess_s
    pairs, guessed = [], 0
    for one in chosen:
        length = _work(one, now)
        if not one.outcome:
            hinted = one.job.hints.get("duration_s")
            guess = hinted if hinted is not None else max(typical, 2.0 * length)
            length = max(guess, length)
            guessed += hinted is None
        pairs.append((replace(one.job, submitted=one.submitted), Truth(max(length, SHORTEST_S))))
    return Trace("log", tuple(pairs)), guessed


def simulate(trace: Trace, cluster: Cluster, policy: Policy) -> dict[str, float]:
    """One policy on the jobs of a trace."""
    run = wire(build_replayed_world(trace, policy.about), cluster, policy)
    return dict(run.outcome(policy.about.name).metrics)


def _counts(one: JobRecord) -> bool:
    return one.outcome != CANCELLED or one.starts > 0


def _work(one: JobRecord, now: float) -> float:
    """Seconds of work done, as on the devices that were asked for."""
    demand = one.job.demand
    return one.gpu_s.at(now) / (demand.gpus * demand.share)


def _runnable(trace: Trace, cluster: Cluster) -> Trace:
    """Without jobs that the cluster, as it is now, could never run."""

    def room(job: Job) -> int:
        kinds = job.demand.kinds or cluster.kinds
        return max((cluster.gpus_by_kind.get(kind, 0) for kind in kinds), default=0)

    kept = tuple(pair for pair in trace.jobs if pair[0].demand.min <= room(pair[0]))
    if not kept:
        raise InvalidConfig("no machine is up that could run any job of the log")
    return replace(trace, jobs=kept)
