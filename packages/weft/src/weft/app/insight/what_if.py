"""The past with something different: a log's jobs replayed in the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.history import LogHistory, ObservedSpeeds
from weft.app.insight.never_starts import StuckJobs, count_never, split_too_large, why_never
from weft.app.insight.present import STEP, Present
from weft.app.serve.rules import Quotas, without_wrappers
from weft.app.simulate.clusters import find_cluster
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import build_replayed_world
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.model.cluster import Cluster, Node, parse_cluster
from weft.core.model.job import Job, JobId, NodeId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.policy import Policy
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, build, read_spec
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.perf.believed import Believed
from weft.plural import say_gpus
from weft.runtime.deciding.live_policy import live_policy
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import CANCELLED
from weft.sim.driver import Progress, Stalled
from weft.sim.result import Outcome, TimelineBar


@frozen
class WhatIfChanges:
    """Whatever is set is different; the rest is as it is.

    `policy` is a policy as a person names it. `limits` and `weights` are of those tenants that are
    named. `nodes` are more machines, written as a cluster. `sizes` are GPUs of jobs by id.
    """

    policy: PartSpec | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    nodes: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any((self.policy, self.limits, self.weights, self.nodes, self.sizes))

    def label(self, policy: str) -> str:
        """The label of the changed run beside `policy`, which decides as it is."""
        what = [
            *(f"limit {who}={gpus:g}" for who, gpus in self.limits.items()),
            *(f"weight {who}={weight:g}" for who, weight in self.weights.items()),
            *([f"{self.nodes} more"] if self.nodes else []),
            *(f"{job} at {say_gpus(gpus)}" for job, gpus in self.sizes.items()),
        ]
        named = self.policy.text if self.policy else policy
        return f"{named}, {', '.join(what)}" if what else named

    def wrap_policy(self, policy: PartSpec, rules: Quotas) -> PartSpec:
        """The policy that decides then: `policy` is what a person named, `rules` what holds."""
        changed = replace(
            rules, limits={**rules.limits, **self.limits}, weights={**rules.weights, **self.weights}
        )
        spec = changed.wrap_policy(without_wrappers(self.policy or policy))
        build("policy", spec)
        return spec

    def cluster(self, cluster: Cluster) -> Cluster:
        if not self.nodes:
            return cluster
        return Cluster((*cluster.nodes, *more_nodes(self.nodes, cluster)), cluster.name)

    def present(self, present: Present, policy: PartSpec, rules: Quotas) -> Present:
        """A live state in which this is so."""
        there = replace(present, cluster=self.cluster(present.cluster))
        if self.policy or self.limits or self.weights:
            there = replace(there, policy=live_policy(self.wrap_policy(policy, rules)), memory=None)
        for name, gpus in self.sizes.items():
            if JobId(name) not in there.table:
                raise UnknownName(f"no job {name!r} runs or waits", hint="`weft jobs` lists them")
            row = there.table.row(JobId(name))
            there = there.with_job(resized(there.table.jobs[row], gpus)).released(JobId(name))
        return there

    def trace(self, trace: Trace, perf: Believed) -> Trace:
        """Past jobs of which this is so: what they work stays, how long that takes does not."""
        missing = set(self.sizes) - {job.id for job, _ in trace}
        if missing:
            raise UnknownName(f"no job {sorted(missing)[0]!r} in the past that is replayed")
        pairs = tuple(
            _resized_pair(job, truth, self.sizes[job.id], perf)
            if job.id in self.sizes
            else (job, truth)
            for job, truth in trace
        )
        return replace(trace, jobs=pairs)


def resized(job: Job, gpus: int) -> Job:
    """The job asking for exactly that many GPUs."""
    if gpus < 1:
        raise InvalidConfig(f"job {job.id!r} at {say_gpus(gpus)}", hint="ask for at least 1")
    demand = job.demand
    return replace(job, demand=replace(demand, gpus=gpus, min=gpus, max=gpus))


def more_nodes(text: str, beside: Cluster) -> list[Node]:
    """Machines as a cluster is written, with unused names."""
    taken, nodes = {node.id for node in beside.nodes}, []
    for number, node in enumerate(parse_cluster(text).nodes):
        name = node.id if node.id not in taken else NodeId(f"more-{number}")
        nodes.append(replace(node, id=name))
    return nodes


def read_named(policy: Described | None) -> PartSpec | None:
    """A policy as a person named it."""
    return None if policy is None else without_wrappers(read_spec("policy", policy))


def _resized_pair(job: Job, truth: Truth, gpus: int, perf: Believed) -> tuple[Job, Truth]:
    changed = resized(job, gpus)
    kind = job.demand.kinds[0] if job.demand.kinds else ""
    faster = perf.speed(job, kind, 1, gpus)
    return changed, replace(truth, length=truth.length / max(faster, 1e-9))


Simulated = Outcome
SimulatedBar = TimelineBar

FEWEST = 50  # jobs, whatever it takes
WHOLE = 0.7  # of the time, for a try with all jobs
GROWTH = 3.0  # at most, from one try to the next
LEAST_GROWTH = 1.2  # less is not worth another try
SAFE = 0.5  # of what is left: what a job takes grows with the number of jobs
MOST_JOBS = 20_000
HOUR = 3600.0
SHORTEST_S = 1.0
UNTOLD = "fifo"  # the policy assumed where a file does not name one


class TooDear(Exception):  # noqa: N818 - no error of anyone's
    """The simulation has taken all it had."""


@frozen
class Variant:
    """One way to replay the past: the policy, the machines, and what is changed of jobs."""

    policy: Described
    cluster: Cluster
    change: WhatIfChanges = field(default_factory=WhatIfChanges)


@frozen
class Compared:
    """Metrics of each policy on the same jobs, by the names of the result contract.

    `complete` unless older jobs were left out.
    """

    policies: Mapping[str, Mapping[str, float]]
    jobs: int
    hours: float
    note: str
    complete: bool
    outcomes: Mapping[str, Simulated] = field(default_factory=dict)
    never: Mapping[str, Sequence[StuckJobs]] = field(default_factory=dict)


def what_if(
    records: Iterable[JobRecord],
    variants: Mapping[str, Variant],
    now: float,
    *,
    hours: float | None = None,
    guess_s: float = 600.0,
    speeds: ObservedSpeeds | None = None,
    progress: Callable[[str, float], None] | None = None,
    cpu_s: float = math.inf,
) -> Compared:
    """Replay the jobs of a ledger in each variant, named by their keys.

    `progress` gets the fraction done of each. Where all jobs would take more than `cpu_s` of CPU
    time, the oldest are left out, and the note says how far the last of these moved the answer. The
    first variant is how it was decided: the note holds it against what happened.

    All are simulated, so that the difference is the change's and not the simulator's. Jobs that
    were cancelled before they ran are left out; of unfinished ones the length is guessed. Speeds
    are those that jobs reported, and in proportion to GPUs where they reported none.
    """
    speeds, records = speeds or ObservedSpeeds(), [*records]
    past, guesses = trace_of(records, now, hours=hours, guess_s=guess_s, speeds=speeds)
    if not past.jobs:
        raise InvalidConfig(
            "the log has no jobs to replay", hint="submit some, or ask for more hours"
        )
    perf = speeds.perf
    replaying = partial(_replay, past, variants, perf, progress)
    jobs, fewer, budget = len(past), "", CpuBudget(cpu_s)
    try:
        replayed = replaying(jobs, budget.share_of_rest(WHOLE))
    except TooDear:
        jobs, budget = min(FEWEST, len(past)), CpuBudget(budget.left_s)
        replayed = replaying(jobs, CpuBudget())
    while jobs < len(past):
        more = more_jobs(jobs, len(past), budget.cpu_s - budget.left_s, budget.left_s)
        if more == jobs:
            break
        try:
            again = replaying(more, budget)
        except TooDear:
            break
        fewer = _say_moved(jobs, replayed[0], again[0])
        replayed, jobs = again, more
    ran, never = replayed
    complete = {name: simulated for name, simulated in ran.items() if simulated is not None}
    trace = replace(past, jobs=past.jobs[-jobs:])
    last, first = trace.jobs[-1][0].submitted, trace.jobs[0][0].submitted
    note = f"{jobs} jobs simulated each time; {_say_speeds(trace, perf)}"
    if jobs < len(past):
        older = len(past) - jobs
        note += f"; {older} older jobs are left out to answer within {cpu_s:g} s of CPU time{fewer}"
    guessed = len(guesses & {job.id for job, _ in trace})
    if guessed:
        note += f"; {guessed} have not finished, their lengths are predicted"
    note += _say_error(records, speeds, next(iter(ran.values())))
    metrics = {
        name: {} if simulated is None else dict(simulated.metrics)
        for name, simulated in ran.items()
    }
    if never:
        note += "; averages are over jobs that end"
    whole = jobs == len(past)
    return Compared(metrics, jobs, (last - first) / HOUR, note, whole, complete, never)


def _say_moved(
    jobs: int, fewer: Mapping[str, Simulated | None], more: Mapping[str, Simulated | None]
) -> str:
    """By how much older jobs move the average wait of the newest `jobs`, in the first variant."""
    before, after = (next(iter(ran.values())) for ran in (fewer, more))
    if before is None or after is None:
        return ""
    newest = frozenset(before.per_job.id)
    waits = (float(np.mean(_waits(outcome, newest))) for outcome in (before, after))
    return "; with fewer still, the newest {} waited {} instead of {}".format(
        jobs, *(f"{seconds / 60.0:.3g} min" for seconds in waits)
    )


def _say_error(
    records: Sequence[JobRecord], speeds: ObservedSpeeds, replayed: Simulated | None
) -> str:
    """Say how the replay of past decisions differs from what happened to the same jobs."""
    past: dict[str, JobRecord] = {
        r.job.id: r for r in records if r.outcome and r.started is not None
    }
    if replayed is None:
        return ""
    ends = zip(replayed.per_job.id, replayed.per_job.end_s.tolist(), strict=True)
    if not (jobs := {job for job, end in ends if job in past and not math.isnan(end)}):
        return ""
    wait_s = float(np.mean([_waited(past[job], speeds) for job in jobs]))
    restarts = float(np.mean([past[job].restarts for job in jobs]))
    again_s = float(np.mean(_waits(replayed, jobs)))
    again = float(np.mean(replayed.per_job.restarts[_rows(replayed, jobs)]))
    return (
        f"; {len(jobs)} ended jobs waited {wait_s / 60.0:.3g} min in all on average and started "
        f"again {restarts:.2f} times, in the replay of the same {again_s / 60.0:.3g} min and "
        f"{again:.2f}"
    )


def _waited(record: JobRecord, speeds: ObservedSpeeds) -> float:
    """Seconds from submission to its end in which it did not run."""
    ended, ran_s = record.ended or record.submitted, speeds.ran_s(record.job.id)
    ran_s = _held_s(record, ended) if ran_s is None else ran_s
    return max(ended - record.submitted - ran_s, 0.0)


def _waits(outcome: Simulated, jobs: Collection[str]) -> Floats:
    """Seconds in which jobs did not run, of those of these that end in a simulation."""
    per_job, held = outcome.per_job, outcome.per_job.held
    waits = per_job.end_s - per_job.submit_s
    if held is not None:
        waits -= np.bincount(held.row, held.end - held.start, len(waits))
    return np.maximum(waits[_rows(outcome, jobs) & ~np.isnan(waits)], 0.0)


def _rows(outcome: Simulated, jobs: Collection[str]) -> Bools:
    return np.array([name in jobs for name in outcome.per_job.id], dtype=bool)


def _replay(
    past: Trace,
    variants: Mapping[str, Variant],
    perf: Believed,
    progress: Callable[[str, float], None] | None,
    jobs: int,
    budget: CpuBudget,
) -> tuple[dict[str, Simulated | None], dict[str, Sequence[StuckJobs]]]:
    """The outcome of the newest `count` jobs in each variant; raises TooDear if it must."""
    ran: dict[str, Simulated | None] = {}
    never: dict[str, Sequence[StuckJobs]] = {}
    for name, variant in variants.items():
        tell = None if progress is None else partial(progress, name)
        changed, policy = variant.change.trace(past, perf), build("policy", variant.policy)
        newest = replace(changed, jobs=changed.jobs[-jobs:])
        fitting, too_large = split_too_large(newest, variant.cluster)
        outcome, waiting = None, dict[JobId, str]()
        if fitting.jobs:
            spending = watch_spending(budget, tell, jobs / len(past))
            outcome, waiting = simulate(fitting, variant.cluster, policy, perf, spending)
        ran[name], never[name] = outcome, count_never({**too_large, **waiting})
    return ran, {name: some for name, some in never.items() if some}


def what_if_in_file(
    history: LogHistory,
    change: WhatIfChanges,
    cluster: str,
    name: str,
    *,
    hours: float | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Compared:
    """The past of a file of events, as it was decided and with a change.

    All of it, however long that takes. `cluster` is needed where the file does not tell about
    machines, as that of a simulation.
    """
    machines = find_cluster(cluster) if cluster else history.cluster
    if not machines.nodes:
        raise InvalidConfig(
            f"{name} does not say what machines there were", hint="name them with --cluster"
        )
    decided = history.policy or read_spec("policy", UNTOLD)
    named, rules = without_wrappers(decided), Quotas.of(decided)
    variants = {
        named.text: Variant(rules.wrap_policy(named), machines),
        change.label(named.text): Variant(
            change.wrap_policy(named, rules), change.cluster(machines), change
        ),
    }
    records = history.ledger.jobs.values()
    compared = what_if(
        records, variants, history.at, hours=hours, speeds=history.speeds, progress=progress
    )
    if history.policy is None:
        note = f"{compared.note}; the file does not name its policy; {UNTOLD} is taken"
        compared = replace(compared, note=note)
    return compared


def trace_of(
    records: Iterable[JobRecord],
    now: float,
    *,
    hours: float | None,
    guess_s: float,
    speeds: ObservedSpeeds | None = None,
) -> tuple[Trace, set[JobId]]:
    """The ledger's jobs with the work they did, and those whose lengths are guesses.

    What restarts took is no work: a replay adds it again for each of its own.
    """
    speeds = speeds or ObservedSpeeds()
    since = -np.inf if hours is None else now - hours * HOUR
    chosen = [record for record in records if record.submitted >= since and _counts(record)][
        -MOST_JOBS:
    ]
    perf = speeds.perf
    works = [_work(record, now, speeds, perf) for record in chosen]
    done = [work for record, work in zip(chosen, works, strict=True) if record.outcome]
    typical = float(np.median(done)) if done else guess_s
    pairs, guessed = [], set[JobId]()
    for record, length in zip(chosen, works, strict=True):
        if not record.outcome:
            hinted = record.job.hints.get("duration_s")
            guess = hinted if hinted is not None else max(typical, 2.0 * length)
            length = max(guess, length)
            if hinted is None:
                guessed.add(record.job.id)
        pairs.append(
            (replace(record.job, submitted=record.submitted), Truth(max(length, SHORTEST_S)))
        )
    return Trace("log", tuple(pairs)), guessed


def simulate(
    trace: Trace, cluster: Cluster, policy: Policy, perf: Believed, watch: Progress | None = None
) -> tuple[Simulated, dict[JobId, str]]:
    """One policy on the jobs of a trace, and why those never start that it leaves waiting."""
    world = replace(build_replayed_world(trace, policy.about), perf=perf)
    run = wire(world, cluster, policy)
    try:
        return run.outcome(policy.about.name, watch), {}
    except Stalled:
        return run.collect(policy.about.name), why_never(run.scheduler)


def _say_speeds(trace: Trace, perf: Believed) -> str:
    known = sum(perf.knows(job) for job, _ in trace)
    if not known:
        return "speeds in proportion to GPUs"
    if known == len(trace):
        return "speeds as the jobs reported them"
    return f"speeds as {known} of the jobs reported them, and in proportion to GPUs for the others"


def _counts(record: JobRecord) -> bool:
    return record.job.demand.gpus > 0 and (record.outcome != CANCELLED or record.starts > 0)


def _work(record: JobRecord, now: float, speeds: ObservedSpeeds, perf: Believed) -> float:
    """Seconds of work done, as on the devices that were asked for, without those of restarts."""
    held_s, worked = _held_s(record, now), speeds.worked(record.job, perf)
    length = held_s if worked is None else worked
    ran_s = speeds.ran_s(record.job.id) or held_s
    restarts_s = record.restarts * perf.restart(record.job, first=False) if record.restarts else 0.0
    return length * max(1.0 - restarts_s / max(ran_s, 1e-9), 0.0)


def _held_s(record: JobRecord, now: float) -> float:
    """Seconds in which it held what it asked for, or as much of more or less."""
    demand = record.job.demand
    return record.gpu_s.at(now) / (max(demand.gpus, 1) * demand.share)


def more_jobs(jobs: int, total: int, took_s: float, left_s: float) -> int:
    """The number of jobs to try next if `jobs` took `took_s`; `jobs` if time allows no more."""
    growth = min(GROWTH, SAFE * left_s / max(took_s, 1e-9))
    return min(int(jobs * growth), total) if growth >= LEAST_GROWTH else jobs


def watch_spending(
    budget: CpuBudget, progress: Callable[[float], None] | None, whole: float = 1.0
) -> Progress:
    """Tells how far a simulation is, which is so much of the `whole`; raises TooDear if it must."""
    reported = 0.0

    def on_progress(done: int, total: int) -> None:
        nonlocal reported
        if budget.empty:
            raise TooDear
        part = done / total * whole
        if progress is not None and (part >= reported + STEP or done == total):
            reported = part
            progress(part)

    return on_progress
