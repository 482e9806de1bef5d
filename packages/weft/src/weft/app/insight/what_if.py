"""The past with something different: a log's jobs replayed in the simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

import numpy as np

from weft.app.insight.changes import Changes
from weft.app.insight.history import History, Speeds
from weft.app.insight.never_starts import NeverStarts, count_never, split_too_large, why_never
from weft.app.insight.present import STEP
from weft.app.insight.purse import Purse
from weft.app.serve.rules import Quotas, without_wrappers
from weft.app.simulate.clusters import find_cluster
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import build_replayed_world
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.policy import Policy
from weft.core.spec.registry import Described, build, read_spec
from weft.frozen import frozen
from weft.perf.believed import Believed
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import CANCELLED
from weft.sim.driver import Progress
from weft.sim.result import Bar, Outcome
from weft.sim.stall import Stalled

Simulated = Outcome
SimulatedBar = Bar

FEWEST = 50  # jobs, whatever it takes
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
    change: Changes = field(default_factory=Changes)


@frozen
class Compared:
    """Metrics of each policy on the same jobs, by the names of the result contract."""

    policies: Mapping[str, Mapping[str, float]]
    jobs: int
    hours: float
    note: str
    outcomes: Mapping[str, Simulated] = field(default_factory=dict)
    never: Mapping[str, Sequence[NeverStarts]] = field(default_factory=dict)


def what_if(
    records: Iterable[JobRecord],
    variants: Mapping[str, Variant],
    now: float,
    *,
    hours: float | None = None,
    guess_s: float = 600.0,
    speeds: Speeds | None = None,
    progress: Callable[[str, float], None] | None = None,
    cpu_s: float = math.inf,
) -> Compared:
    """Replay the jobs of a ledger in each variant, named by their keys.

    `progress` gets the fraction done of each. Where all jobs would take more than `cpu_s` of CPU
    time, the oldest are left out.

    All are simulated, so that the difference is the change's and not the simulator's. Jobs that
    were cancelled before they ran are left out; of unfinished ones the length is guessed. Speeds
    are those that jobs reported, and in proportion to GPUs where they reported none.
    """
    speeds = speeds or Speeds()
    past, guesses = trace_of(records, now, hours=hours, guess_s=guess_s, speeds=speeds)
    if not past.jobs:
        raise InvalidConfig(
            "the log has no jobs to replay", hint="submit some, or ask for more hours"
        )
    perf = speeds.perf
    replaying = partial(_replay, past, variants, perf, progress)
    jobs = len(past) if math.isinf(cpu_s) else min(FEWEST, len(past))
    purse, replayed = Purse(cpu_s), replaying(jobs, Purse())
    while jobs < len(past):
        more = more_jobs(jobs, len(past), cpu_s - purse.left_s, purse.left_s)
        if more == jobs:
            break
        try:
            replayed, jobs = replaying(more, purse), more
        except TooDear:
            break
    ran, never = replayed
    complete = {name: simulated for name, simulated in ran.items() if simulated is not None}
    trace = replace(past, jobs=past.jobs[-jobs:])
    last, first = trace.jobs[-1][0].submitted, trace.jobs[0][0].submitted
    note = f"{jobs} jobs simulated each time; {_say_speeds(trace, perf)}"
    if jobs < len(past):
        older = len(past) - jobs
        note += f"; {older} older jobs are left out to answer within {cpu_s:g} s of CPU time"
    guessed = len(guesses & {job.id for job, _ in trace})
    if guessed:
        note += f"; {guessed} have not finished, their lengths are predicted"
    metrics = {
        name: {} if simulated is None else dict(simulated.metrics)
        for name, simulated in ran.items()
    }
    if never:
        note += "; averages are over jobs that end"
    return Compared(metrics, jobs, (last - first) / HOUR, note, complete, never)


def _replay(
    past: Trace,
    variants: Mapping[str, Variant],
    perf: Believed,
    progress: Callable[[str, float], None] | None,
    jobs: int,
    purse: Purse,
) -> tuple[dict[str, Simulated | None], dict[str, Sequence[NeverStarts]]]:
    """The outcome of the newest `count` jobs in each variant; raises TooDear if it must."""
    ran: dict[str, Simulated | None] = {}
    never: dict[str, Sequence[NeverStarts]] = {}
    for name, variant in variants.items():
        tell = None if progress is None else partial(progress, name)
        changed, policy = variant.change.trace(past, perf), build("policy", variant.policy)
        newest = replace(changed, jobs=changed.jobs[-jobs:])
        fitting, too_large = split_too_large(newest, variant.cluster)
        outcome, waiting = None, dict[JobId, str]()
        if fitting.jobs:
            spending = watch_spending(purse, tell, jobs / len(past))
            outcome, waiting = simulate(fitting, variant.cluster, policy, perf, spending)
        ran[name], never[name] = outcome, count_never({**too_large, **waiting})
    return ran, {name: some for name, some in never.items() if some}


def what_if_in_file(
    history: History,
    change: Changes,
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
        named.text: Variant(rules.around(named), machines),
        change.label(named.text): Variant(
            change.around(named, rules), change.cluster(machines), change
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
    speeds: Speeds | None = None,
) -> tuple[Trace, set[JobId]]:
    """The ledger's jobs with the work they did, and those whose lengths are guesses."""
    since = -np.inf if hours is None else now - hours * HOUR
    chosen = [record for record in records if record.submitted >= since and _counts(record)][
        -MOST_JOBS:
    ]
    done = [_work(record, now) for record in chosen if record.outcome]
    typical = float(np.median(done)) if done else guess_s
    perf = None if speeds is None else speeds.perf
    pairs, guessed = [], set[JobId]()
    for record in chosen:
        worked = (
            speeds.worked(record.job, perf) if speeds is not None and perf is not None else None
        )
        length = _work(record, now) if worked is None else worked
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
    trace: Trace,
    cluster: Cluster,
    policy: Policy,
    perf: Believed,
    watch: Progress | None = None,
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


def _work(record: JobRecord, now: float) -> float:
    """Seconds of work done, as on the devices that were asked for."""
    demand = record.job.demand
    return record.gpu_s.at(now) / (max(demand.gpus, 1) * demand.share)


def more_jobs(jobs: int, total: int, took_s: float, left_s: float) -> int:
    """How many jobs to try next if `jobs` took `took_s`; the same if time allows no more."""
    growth = min(GROWTH, SAFE * left_s / max(took_s, 1e-9))
    return min(int(jobs * growth), total) if growth >= LEAST_GROWTH else jobs


def watch_spending(
    purse: Purse, progress: Callable[[float], None] | None, whole: float = 1.0
) -> Progress:
    """Tells how far a simulation is, which is so much of the `whole`; raises TooDear if it must."""
    reported = 0.0

    def hear(done: int, total: int) -> None:
        nonlocal reported
        if purse.empty:
            raise TooDear
        part = done / total * whole
        if progress is not None and (part >= reported + STEP or done == total):
            reported = part
            progress(part)

    return hear
