"""Admission: jobs that can run here, policies the engine can honour, news that matters."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import assert_never

from weft.core.errors import InvalidConfig
from weft.core.events import event as facts
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import Cluster
from weft.core.model.dependencies import explain_in_vain
from weft.core.model.gang_nodes import explain_too_few_nodes
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import Controls, Needs
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import GPU, asks_for, describe_host, device_word
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import Described, build, read_spec
from weft.core.state.capacity import EPS, Capacity
from weft.core.state.cells import TableColumns
from weft.core.state.releasing import devices_of
from weft.core.state.state import State
from weft.core.stops import Rung
from weft.runtime.records.job_records import JobRecord, JobRecords
from weft.runtime.records.ledger import SUCCEEDED, Ledger, failure_class
from weft.stack.layers import place_on_host
from weft.wire.gpu_health import is_fault, is_of_others

FAULT_S = 10.0  # in which all clients of a GPU notice the fault of one


def blame_neighbours(
    event: facts.Failed | facts.StartFailed, state: State, row: int
) -> facts.Failed | facts.StartFailed:
    """The failure of a row, marked as lost where its neighbours are to blame."""
    sleeping = state.asleep.find(event.job, event.attempt)
    on = state.table.allocations[row] or (None if sleeping is None else sleeping.on)
    beside = on is not None and _is_beside_sleepers(state, event.job, on)
    return _blame(event, on, after_fault=_follows_fault(state), beside=beside)


def _is_beside_sleepers(state: State, job: JobId, on: Allocation) -> bool:
    """True if others that are frozen hold memory of these devices."""
    others = [sleeper for sleeper in state.asleep.sleepers.values() if sleeper.job != job]
    devices = {*devices_of(on)}
    return any(
        sleeper.rung is Rung.FREEZE and not devices.isdisjoint(devices_of(sleeper.on))
        for sleeper in others
    )


def _follows_fault(state: State) -> bool:
    """True if the fault of a GPU ended a job that shared it a moment ago."""
    events = state.history.events
    return any(
        isinstance(event, facts.Failed) and event.lost and is_fault(event.reason)
        for at, event in events
        if at >= events[-1][0] - FAULT_S
    )


def _blame(
    event: facts.Failed | facts.StartFailed,
    on: Allocation | None,
    *,
    after_fault: bool,
    beside: bool,
) -> facts.Failed | facts.StartFailed:
    """A job that ran out of the memory that it was given beside others did nothing wrong.

    Nor need one that a GPU's fault ended beside others: under MPS it ends all of them.
    """
    if not isinstance(event, facts.Failed) or on is None:
        return event
    capped = on.sharing.gpu_mem_gb is not None or on.sharing.share < 1.0 or beside
    fault = is_fault(event.reason) and (on.sharing.share < 1.0 or after_fault)
    if is_fault(event.reason) and not is_of_others(event.reason):
        event = replace(event, gpu_fault=True)
    if not fault and not (event.out_of_memory and capped):
        return event
    why = "ran out of GPU memory beside other jobs, so it starts again alone"
    if fault:
        why = "a fault of the GPU that it shares ended it, so it starts again"
        why += " alone" * event.gpu_fault
    return replace(event, reason=f"{why}: {event.reason}", lost=True, final=False)


log = logging.getLogger(__name__)

ENDS = (facts.StartFailed, facts.Stopped, facts.Finished, facts.Failed)
AGENTS_LOST = 5  # in a row: more are the job's own doing
NO_COMMAND = {126: "its command cannot be run", 127: "its command or environment is not found"}
TRIES_ALIKE = 3  # early failures of one kind in a row: the next try would end alike
STARTS_LOST = 10  # the same of starts of which nothing was heard, on whatever machines
OF_ATTEMPT = (
    *(
        facts.Started,
        facts.StartFailed,
        facts.Stopped,
        facts.Finished,
        facts.Failed,
        facts.Reported,
        facts.Measured,
        facts.Saved,
        facts.Noticed,
    ),
    *(
        facts.Resizable,
        facts.Resized,
        facts.ResizeFailed,
        facts.Slept,
        facts.SleepFailed,
        facts.Awoke,
        facts.Observed,
    ),
)


def check_new(job: Job, cluster: Cluster, ledger: Ledger, incoming: Container[JobId]) -> None:
    """Raise InvalidConfig for a job that is there already or can never run."""
    if job.id in ledger.jobs or job.id in incoming:
        raise InvalidConfig(f"there is a job {job.id!r} already", hint="choose another id")
    check_job(job, cluster)


def check_job(job: Job, cluster: Cluster) -> None:
    """Raise InvalidConfig for a job that could never run on `cluster`."""
    demand = job.demand
    if demand.max == 0:
        _check_host_alone(job, cluster)
        return
    if demand.min < 1:
        raise InvalidConfig(f"job {job.id!r}: gpus is {demand.min}", hint="ask for at least 1 GPU")
    device = device_word(cluster.kinds)
    if demand.kinds and not set(demand.kinds) & set(cluster.kinds):
        raise InvalidConfig(
            f"job {job.id!r} runs on {', '.join(demand.kinds)} only",
            hint=f"there are {device}s of kind {', '.join(cluster.kinds) or 'none'}",
        )
    kinds = demand.kinds or cluster.kinds
    room = max((cluster.gpus_by_kind.get(kind, 0) for kind in kinds), default=0)
    if demand.min > room:
        what = asks_for(demand.min, kinds if device != GPU else ())
        what += " of one kind" * (device == GPU)
        raise InvalidConfig(
            f"job {job.id!r} asks for {what}; there are {room}", hint=f"ask for at most {room}"
        )
    what, hint = explain_too_few_nodes(demand, cluster)
    if what:
        raise InvalidConfig(f"job {job.id!r} {what}", hint=hint)
    _check_host(job, cluster)


def read_outcomes(jobs: Iterable[Job], records: JobRecords) -> dict[JobId, str]:
    """Read the outcomes of jobs that these wait for, "" for those that have none; on any thread.

    Each is looked up once, however many wait for it; unknown ones are left out.
    """
    awaited = dict.fromkeys(
        other
        for after in {id(job.after): job.after for job in jobs}.values()
        for other in after.jobs
    )
    live = {other: record.outcome for other in awaited if (record := records.live.get(other))}
    return live | records.ended.outcomes([other for other in awaited if other not in live])


def check_after(jobs: Iterable[Job], outcomes: Mapping[JobId, str]) -> dict[JobId, str]:
    """Find the reason of each job that can never start, as one that it waits for ended otherwise.

    Raises InvalidConfig for a job that waits for one that is not known.
    """
    by_after = {id(job.after): job for job in jobs}
    why: dict[int, str] = {}
    for key, job in by_after.items():
        for other, wrong in job.after.wrong_ends():
            if other not in outcomes:
                raise InvalidConfig(
                    f"job {job.id!r} must run after {other!r}, but there is no such job",
                    hint="submit that one first; `weft jobs --all` shows all that are known",
                )
            finished = outcomes[other] == SUCCEEDED
            if outcomes[other] and wrong is finished:
                why.setdefault(key, explain_in_vain(other, finished=finished))
    return {job.id: why[id(job.after)] for job in jobs if id(job.after) in why}


def _check_host(job: Job, cluster: Cluster) -> None:
    """Raise InvalidConfig for more CPU cores or memory than its devices could come with."""
    kinds = job.demand.kinds or cluster.kinds
    for field, unit, asked in (("cpus", "CPUs", job.cpus), ("mem_gb", "GB", job.mem_gb)):
        if not asked:
            continue
        nodes = job.demand.nodes or job.demand.max
        most = max(_most_host(cluster, kind, field, nodes) for kind in kinds)
        if asked > most + EPS:
            raise InvalidConfig(
                f"job {job.id!r}: {field} is {asked:g}, but the nodes for its "
                f"{asks_for(job.demand.max, kinds)} have {most:g} {unit} at most",
                hint=f"ask for at most {most:g}, or leave {field} out",
            )


def _check_host_alone(job: Job, cluster: Cluster) -> None:
    """Refuse a job without GPUs that no machine can hold: it runs on one."""
    if place_on_host(Capacity(cluster), job) is None:
        cpus = max((node.cpus for node in cluster.nodes), default=0.0)
        mem_gb = max((node.mem_gb for node in cluster.nodes), default=0.0)
        raise InvalidConfig(
            f"job {job.id!r} asks for {describe_host(job)}, which no machine here has",
            hint=f"the largest have {cpus:g} CPUs and {mem_gb:.4g} GB",
        )


def _most_host(cluster: Cluster, kind: str, field: str, nodes: int) -> float:
    """The most that a job on at most that many nodes of a kind could have of them."""
    have = [n.cpus if field == "cpus" else n.mem_gb for n in cluster.nodes if n.kind == kind]
    return inf if not all(have) else sum(sorted(have, reverse=True)[:nodes])


def policy_of(spec: PartSpec) -> Policy:
    """The policy that is described."""
    policy: Policy = build("policy", spec)
    return policy


def admit_policy(policy: Described, supports: Controls, predictor: Predictor | None) -> PartSpec:
    """The spec that was described, checked; raises InvalidConfig or UnknownName."""
    spec = read_spec("policy", policy)
    check_policy(policy_of(spec), supports, predictor)
    return spec


def check_policy(policy: Policy, supports: Controls, predictor: Predictor | None) -> None:
    """Raise InvalidConfig for a policy that sets or reads what is not to be had here."""
    about = policy.about
    if missing := about.controls & ~supports:
        names = ", ".join(flag.name.lower() for flag in missing if flag.name)
        raise InvalidConfig(
            f"policy {about.name!r} sets {names}, which this engine cannot honour",
            hint="choose another policy or engine; `weft list policy` shows all",
        )
    if Needs.REMAINING in about.needs and predictor is None:
        raise InvalidConfig(
            f"policy {about.name!r} reads remaining times, but no predictor is configured",
            hint="choose one with --predictor; `weft list predictor` shows all",
        )


def admit_events(events: Iterable[facts.Event], state: State, ledger: Ledger) -> list[facts.Event]:
    """The events as they go into the log, without old news.

    An engine may tell again what it told before, after a restart and of an attempt that is asked
    to stop just as it ends. What follows the end of an attempt is old, also before that is known.
    """
    admitted: list[facts.Event] = []
    over: set[tuple[JobId, int]] = set()
    for event in events:
        if isinstance(event, OF_ATTEMPT) and (event.job, event.attempt) in over:
            continue
        if (fact := _admit(event, state, ledger)) is not None:
            admitted.append(fact)
        if isinstance(event, ENDS):
            over.add((event.job, event.attempt))
    return admitted


def _admit(event: facts.Event, state: State, ledger: Ledger) -> facts.Event | None:
    if isinstance(event, OF_ATTEMPT) and not state.expects(event.job, event.attempt):
        return None
    if _is_old(event, state, ledger):
        return None
    match event:
        case facts.Stopped(job, attempt):
            why = "it was stopped, but not by the scheduler"
            failed = facts.Failed(job, attempt, why)
            return event if state.leaving(job, attempt) else _judge(failed, state, ledger)
        case facts.Failed() | facts.StartFailed():
            return _judge(event, state, ledger)
        case (
            facts.Started()
            | facts.StartedAhead()
            | facts.Noticed()
            | facts.Resizable()
            | facts.Resized()
            | facts.ResizeFailed()
        ):
            pass
        case facts.Slept() | facts.SleepFailed() | facts.Awoke():
            pass
        case (
            facts.Finished()
            | facts.Reported()
            | facts.Measured()
            | facts.Saved()
            | facts.Submitted()
            | facts.Cancelled()
            | facts.Decided()
        ):
            pass
        case facts.Suspended() | facts.Resumed() | facts.PriorityChanged() | facts.Observed():
            pass
        case (
            facts.NodeUp()
            | facts.NodeDown()
            | facts.LoanRecalled()
            | facts.Refitted()
            | facts.Foretold()
            | facts.Woken()
            | facts.PolicyChanged()
            | facts.DeadlineMissed()
        ):
            pass
        case _:
            assert_never(event)
    return event


def _is_old(event: facts.Event, state: State, ledger: Ledger) -> bool:  # noqa: PLR0911 - one return a case
    match event:
        case facts.Started(job, attempt):  # one that was started ahead sleeps before it runs
            ahead = state.asleep.find(job, attempt) is not None
            return ahead or ledger.jobs[job].running == attempt
        case facts.Saved(job, _, step):  # 0 says nothing of steps
            return step > 0 and ledger.jobs[job].saved == step
        case facts.Measured(job, attempt, noted_at):
            return ledger.jobs[job].metrics.has(attempt, noted_at)
        case facts.Noticed(job):
            return _was_noticed(event, ledger.jobs[job])
        case facts.Resized(job, attempt, epoch) | facts.ResizeFailed(job, attempt, epoch):
            return not state.live.is_answered(job, attempt, epoch)
        case facts.Resizable(job, attempt):
            return state.live.is_resizable(job, attempt)
        case facts.StartedAhead(job, attempt):
            return not _may_start_ahead(state, job, attempt)
        case facts.Slept(job) | facts.SleepFailed(job) | facts.Awoke(job):
            return state.asleep.is_asleep(job) is not isinstance(event, facts.Awoke)
        case facts.Suspended() | facts.Resumed() | facts.PriorityChanged():
            return _is_so(event, state)
        case _:
            return False


def _may_start_ahead(state: State, job: JobId, attempt: int) -> bool:
    """True if a job still waits, and nothing of it runs or sleeps."""
    row = state.table.find(job)
    if row is None or state.table.allocations[row] is not None or job in state.table.suspended:
        return False
    gone = state.asleep.find(job) is None and not state.releasing.is_leaving(job)
    return gone and state.table.get(row, TableColumns.ATTEMPT) + 1 == attempt


def _is_so(event: facts.Suspended | facts.Resumed | facts.PriorityChanged, state: State) -> bool:
    """True if what someone asked of a job is so already, or the job has ended."""
    row = state.table.find(event.job)
    if row is None:
        return True
    if isinstance(event, facts.PriorityChanged):
        job = state.table.jobs[row]
        return (job.priority, job.tier) == (event.priority, event.tier)
    return (event.job in state.table.suspended) == isinstance(event, facts.Suspended)


def _judge(
    event: facts.Failed | facts.StartFailed, state: State, ledger: Ledger
) -> facts.Failed | facts.StartFailed:
    """The failure with the verdict if the job is tried again; one that has left needs no answer."""
    row = state.table.find(event.job)
    if row is None:
        return event
    return judge_failure(blame_neighbours(event, state, row), ledger.jobs[event.job])


def _was_noticed(event: facts.Noticed, record: JobRecord) -> bool:
    return (event.level, event.text) in {(level, text) for _, level, text in record.notices}


def judge_failure(event: facts.Failed | facts.StartFailed, record: JobRecord) -> facts.Failed:
    """A failure with whether the job is tried again.

    It is if it was lost without its own doing, or has tries left since it last made progress. A job
    that loses one agent after the other, or one start, is taken to end them itself.
    """
    launch = record.job.launch
    agent_died = event.agent_died if isinstance(event, facts.Failed) else event.lost
    most = AGENTS_LOST if isinstance(event, facts.Failed) else STARTS_LOST
    lost = event.lost and not (agent_died and record.agents_lost >= most)
    tries = launch.retries if launch is not None else 0
    code, final = (event.code, event.final) if isinstance(event, facts.Failed) else (None, False)
    chosen = launch is not None and code in launch.retry_on
    wanted = chosen or ((launch is None or not launch.retry_on) and code not in NO_COMMAND)
    left = record.failures < tries and wanted and not final
    repeats = _repeats(event, record) if left and not lost else ""
    retry = lost or (left and not repeats)
    log.warning(
        "job=%s attempt=%d failed retry=%s: %s", event.job, event.attempt, retry, event.reason
    )
    reason = event.reason
    if code in NO_COMMAND and not retry:
        reason = f"{NO_COMMAND[code]}, so it is not tried again: {reason}"
    if event.lost and not lost:
        reason += f"; so did {record.agents_lost} before it, so this counts as its own failure"
    reason += repeats
    full = isinstance(event, facts.Failed) and event.out_of_memory
    return facts.Failed(
        event.job,
        event.attempt,
        reason,
        retry,
        lost,
        code,
        final or bool(repeats),
        agent_died,
        full,
        isinstance(event, facts.Failed) and event.gpu_fault,
    )


def _repeats(event: facts.Failed | facts.StartFailed, record: JobRecord) -> str:
    """The reason not to try a job again that failed early several times in one way; else empty.

    Nine in ten of such fail again (Philly, ATC 2019). A user who names exit codes in `retry_on`
    knows better.
    """
    how = failure_class(event) if isinstance(event, facts.Failed) else ""
    named = record.job.launch is not None and record.job.launch.retry_on
    if not how or named or record.alike != (how, TRIES_ALIKE - 1):
        return ""
    return f"; {TRIES_ALIKE} attempts in a row failed early with {how}, so it is not tried again"
