"""Explains why a job waits or holds what it holds, what would change it, and when it will start.

Pure functions of the scheduler's state as a value: every counterfactual is the policy's own
decision on a copy with one thing changed, so what is advised is what would happen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain, takewhile
from typing import Any

import numpy as np

from weft.app.insight.counted_start import (
    count_start,
    describe_length,
    predict_goodput,
    predict_pace,
    read_promise,
    warn_of_failure,
)
from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.present import BOUNDLESS, Estimate, Present
from weft.core.model.job import Allocation, Demand, Job, JobId, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker, Reason, asks_for, device_word, name_some
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.runtime.deciding.waiting import WaitExplainer

AHEAD_SHOWN = 20
FEW = 16
ROUNDS, URGENT = 50, 1.0
ORDER, CHANGES, SIMULATED = 0.25, 0.5, 0.7  # parts of what is left each time
FEW_SIMULATIONS, ALL = 4, 500  # the second: jobs up to which those behind are simulated too
COLD = 2.0  # what a decision on an empty cluster without memory takes, by one as they are
PROBES = 500, 1_500  # waiting jobs that are asked about to tell what all of them would take


@frozen
class Front:
    """A job in front of another: what it holds, or waits for, in GPUs."""

    job: Job
    gpus: float
    running: bool


def _as_it_is(present: Present) -> Present:
    return present


@frozen
class Advice:
    """A change that would start a job now: of the job, or of what is around it."""

    text: str
    fields: Mapping[str, Any]
    job: Job
    around: Callable[[Present], Present] = field(default=_as_it_is)


@frozen
class Why:
    """An explanation in parts; `advice` and `start` only for a job that waits.

    `left_out` says what there was no time for.
    """

    reason: str
    numbers: Mapping[str, Any]
    ahead: tuple[Front, ...] = ()
    advice: Advice | None = None
    start: Estimate | None = None
    left_out: tuple[str, ...] = ()


@frozen
class Trial:
    """The outcome for a job submitted now; `moves` are jobs with why they move."""

    allocation: Allocation | None
    displaces: tuple[Job, ...] = ()
    reason: str = ""
    start: Estimate | None = field(default=None)
    moves: tuple[tuple[Job, str], ...] = ()


def explain(
    present: Present,
    job: JobId,
    waits: Reason | None = None,
    more: Iterable[Advice] = (),
    budget: CpuBudget = BOUNDLESS,
) -> Why:
    """Everything about one active job, as far as `budget` pays for it: the reason, then the rest.

    `waits` is why it waits, as a live scheduler knows it; `more` are changes that others can make,
    and which are tried where its owner can do nothing.
    """
    row = present.table.row(job)
    on = present.table.allocations[row]
    if on is not None:
        return _holding(present, row, on)
    mine = present.table.jobs[row]
    demand = mine.demand
    free = present.free_for(mine)
    cold_s = _predict_cold_s(present, budget)
    ordering = replace(budget, step_s=cold_s).share_of_rest(ORDER)
    budget = replace(budget, step_s=max(budget.step_s, cold_s / COLD))
    ahead = in_front(present, row, ordering)
    changing = budget.share_of_rest(CHANGES)
    advice = cheapest_change(present, mine, more, changing)
    never = waits is not None and waits.blocker is Blocker.TOO_LARGE
    start = Estimate((None,)) if never else _estimate(present, job, ahead, budget)
    numbers = {
        "asks_for": _asks(demand),
        "free_by_kind": {kind: free.idle(kind) for kind in free.kinds},
        "largest_free_block": _blocks(free),
        "ahead_waiting": sum(not front.running for front in ahead),
        "ahead_gpus": sum(front.gpus for front in ahead if not front.running),
        "held_by_running": sum(front.gpus for front in ahead if front.running),
        "waited_s": present.now - float(present.table.submitted[row]),
        **_expected(present, row),
        **_figures(present, job, budget),
    }
    left_out = {
        "the jobs ahead are listed by submission where simulating takes too long": ordering.empty,
        "not every change was tried": advice is None and changing.empty,
        "the start is estimated from the jobs ahead, not simulated": start.counted,
    }
    return Why(
        _waits(present, mine, waits),
        numbers,
        tuple(ahead[:AHEAD_SHOWN]),
        advice,
        start,
        tuple(words for words, so in left_out.items() if so),
    )


def plan(present: Present, job: Job, budget: CpuBudget = BOUNDLESS) -> Trial:
    """The decision of the policy about one more job at this moment."""
    there = present.with_job(job)
    decided = there.decide()
    displaced = _find_displaced(there, decided, job.id)
    on = decided.changes.get(job.id)
    if on is not None:
        kind = there.cluster.kind_of(on)
        nodes = len(on.slices) if job.demand.nodes else 0
        what = asks_for(on.gpus, (kind,), on.sharing.share, nodes)
        warning = warn_of_failure(there.knowledge.predictor, job, device_word(there.cluster.kinds))
        text = f"starts at once on {what}{warning and f'; {warning}'}"
        return Trial(on, displaced, text, moves=_find_moved(there, decided))
    rejected = decided.rejected.get(job.id)
    if rejected:
        return Trial(None, (), f"would be rejected: {rejected}")
    ahead = in_front(there, there.table.row(job.id), budget)
    text = decided.reasons.get(job.id, "")
    word = decided.blockers.get(job.id, Blocker.SAID)
    reason = Reason(word, {"text": text}, text) if text else None
    start = _estimate(there, job.id, ahead, budget)
    return Trial(None, (), _waits(there, job, reason), start)


def in_front(present: Present, row: int, budget: CpuBudget = BOUNDLESS) -> list[Front]:
    """The jobs that a job waits for: those that the policy starts before it, then running ones.

    The order is the policy's own, found by asking it again and again on an empty cluster: who
    it starts first there is in front. Those it never starts count by submission.
    """
    table = present.table
    order = _order(present, table.jobs[row].id, budget)
    mine = order.get(table.jobs[row].id, len(order))
    waiting = [
        (order.get(job.id, len(order)), i)
        for i, job in enumerate(table.jobs)
        if table.allocations[i] is None and i != row and job.id not in table.suspended
    ]
    before = sorted(
        other for other in waiting if other[0] < mine or (other[0] == mine and other[1] < row)
    )
    kinds = set(table.jobs[row].demand.kinds or present.cluster.kinds)
    need = table.need.tolist()
    running = [
        Front(table.jobs[i], on.counted_gpus, running=True)
        for i, on in enumerate(table.allocations)
        if on is not None and present.cluster.kind_of(on) in kinds
    ]
    queue = [Front(table.jobs[i], need[i], running=False) for _, i in before]
    return queue + sorted(running, key=lambda front: -front.gpus)


def cheapest_change(
    present: Present, job: Job, more: Iterable[Advice] = (), budget: CpuBudget = BOUNDLESS
) -> Advice | None:
    """The smallest change to what a job asks for with which it would start now.

    Tried in order of what they cost its owner: another kind, sharing, less of the host, a higher
    priority, then ever fewer GPUs; `more` come last.
    """
    tried = takewhile(lambda _: not budget.empty, chain(_alternatives(present, job), more))
    return next((advice for advice in tried if advice.around(present).starts(advice.job)), None)


def _estimate(
    present: Present, job: JobId, ahead: Collection[Front], budget: CpuBudget
) -> Estimate:
    """By simulation, of jobs behind too unless many wait: they may overtake it. Else counted."""
    before = present.without_behind(job, {front.job.id for front in ahead})
    there = present if len(present.table) <= ALL else before
    if unknown := there.unknown_start(job):
        return Estimate((None,), unknown=unknown)
    estimate = there.estimate(job, budget=budget.share_of_rest(SIMULATED))
    enough = len(estimate.after) >= FEW_SIMULATIONS or not budget.empty
    if any(seconds is not None for seconds in estimate.after) and enough:
        return estimate
    order = [front.job.id for front in ahead if not front.running]
    counted = count_start(before, [*order, job], budget)
    return replace(counted, correction=present.correction) if counted is not None else estimate


def _alternatives(present: Present, job: Job) -> Iterator[Advice]:
    demand = job.demand
    others = [kind for kind in present.cluster.kinds if kind not in demand.kinds]
    if demand.kinds and others:
        changed = replace(job, demand=replace(demand, kinds=()))
        text = f"accept GPUs of kind {' or '.join(others)} as well"
        yield Advice(text, {"kinds": []}, changed)
    if demand.gpus == 1 and demand.share == 1.0 and job.shareable:
        half = replace(job, demand=replace(demand, share=0.5))
        yield Advice("share a GPU, asking for half of one", {"share": 0.5}, half)
    if job.cpus is not None or job.mem_gb is not None:
        plain = replace(job, cpus=None, mem_gb=None)
        text = "ask for no CPUs and memory of its own: its GPUs' part of the host"
        yield Advice(text, {"cpus": None, "mem_gb": None}, plain)
    if job.priority < URGENT:
        urgent = replace(job, priority=URGENT, tier=Tier.GUARANTEED)
        yield Advice("ask for priority guaranteed", {"priority": "guaranteed"}, urgent)
    if demand.nodes:
        anywhere = replace(job, demand=replace(demand, nodes=0))
        yield Advice("leave nodes out: any number of nodes will do", {"nodes": None}, anywhere)
    for count in _fewer(demand):
        fewer = replace(job, demand=replace(demand, gpus=count, min=count, max=count))
        word = device_word(present.cluster.kinds)
        what = f"ask for {count} {word}{'s' * (count > 1)} instead of {demand.gpus}"
        yield Advice(what, {"gpus": count}, fewer)


def _fewer(demand: Demand) -> Iterator[int]:
    """Smaller counts, the largest first; powers of two where there are many."""
    unit = demand.nodes or 1
    below = range(min(demand.gpus, demand.min) // unit - 1, 0, -1)
    if len(below) <= FEW:  # each costs a decision
        yield from (count * unit for count in below)
        return
    count = 1 << (below[0].bit_length() - 1)
    yield below[0] * unit
    while count >= 1:
        if count != below[0]:
            yield count * unit
        count //= 2


def _order(present: Present, until: JobId, budget: CpuBudget) -> dict[JobId, int]:
    """Waiting jobs in the order in which the policy would start them, one clusterful at a time."""
    left = np.array([on is None for on in present.table.allocations], dtype=bool)
    order: dict[JobId, int] = {}
    for _ in range(ROUNDS):
        if budget.empty:
            break
        empty = replace(present, table=present.table.pick(left), memory=None)
        started = [job for job, to in empty.decide().changes.items() if to is not None]
        order |= {job: i for i, job in enumerate(started, start=len(order))}
        if not started or until in order:
            break
        left[[present.table.row(job) for job in started]] = False
    return order


def _predict_cold_s(present: Present, budget: CpuBudget) -> float:
    """CPU seconds of a decision on an empty cluster, going by some with fewer jobs.

    Those were made now, by this process: the last decision of a service may have been another's
    size, or on another day.
    """
    believed, jobs = COLD * budget.step_s, len(present.table)
    if not believed or believed > budget.left_s or jobs < 2 * max(PROBES):
        return believed
    took = []
    for count in PROBES:
        some = np.zeros(jobs, dtype=bool)
        some[np.flatnonzero(present.table.held == 0.0)[:count]] = True
        before = budget.left_s
        replace(present, table=present.table.pick(some), memory=None).decide()
        took.append(before - budget.left_s)
    each = (took[1] - took[0]) / (PROBES[1] - PROBES[0])
    return max(believed, took[0] + (jobs - PROBES[0]) * each)


def _figures(present: Present, job: JobId, budget: CpuBudget) -> dict[str, str]:
    """The numbers that the policy reckoned with, where it tells any."""
    text = "" if budget.empty else present.decide({job}).reasons.get(job, "")
    if text.startswith("spot: "):  # a promise
        return {"promised": text.removeprefix("spot: ")}
    return {"figures": text} if text else {}


def _expected(present: Present, row: int) -> dict[str, str]:
    """The expected length and risk of failure, where they are known."""
    predictor, job = present.knowledge.predictor, present.table.jobs[row]
    device = device_word(present.cluster.kinds)
    length = describe_length(predictor, present.table, job.id, present.now, device)
    known = {"runs for": length, "warning": warn_of_failure(predictor, job, device)}
    return {name: words for name, words in known.items() if words}


def _holding(present: Present, row: int, on: Allocation) -> Why:
    table = present.table
    held = float(table.service(present.now)[row])
    devices = {(part.node, gpu) for part in on.slices for gpu in part.gpus}
    beside = [
        table.jobs[i]
        for i, other in enumerate(table.allocations)
        if other is not None
        and i != row
        and any((part.node, gpu) in devices for part in other.slices for gpu in part.gpus)
    ]
    job = table.jobs[row]
    numbers: dict[str, Any] = {
        "asks_for": _asks(job.demand),
        "gpus": on.gpus,
        "share": on.sharing.share,
        "gpu_seconds": held,
        "beside": len(beside),
        "may_be_stopped": job.stoppable,
        **({"plan": on.plan.text} if on.plan is not None else {}),
    }
    kind, known = present.cluster.kind_of(on), present.knowledge
    predicted = {
        "predicted_goodput": predict_goodput(known, job, on, kind),
        "predicted_pace": predict_pace(known, job, beside, on, kind),
        "measured_pace": known.colocation.pace(job) if known.colocation and beside else None,
        **(read_promise(known, job) if beside else {}),
    }
    numbers |= {name: value for name, value in predicted.items() if value is not None}
    numbers |= _expected(present, row)
    numbers |= _figures(present, job.id, BOUNDLESS)
    held_now = asks_for(on.gpus, (kind,), on.sharing.share)
    wanted = "" if job.demand.rigid else f"; it can use {job.demand.min} to {job.demand.max}"
    return Why(f"holds {held_now}{wanted}{_name_neighbours(job, beside)}", numbers)


def _name_neighbours(job: Job, beside: Sequence[Job]) -> str:
    """The jobs that share its devices: its own tenant's by name, others by number."""
    names = [other.id for other in beside if other.tenant == job.tenant]
    others = len(beside) - len(names)
    if others:
        names.append(JobId(f"{others} of other tenants"))
    return f"; shares its devices with {name_some(names)}" if names else ""


def _asks(demand: Demand) -> str:
    count = str(demand.gpus) if demand.rigid else f"{demand.min}-{demand.max}"
    share = "" if demand.share == 1.0 else f" x {demand.share:g}"
    kinds = f" of {'/'.join(demand.kinds)}" if demand.kinds else ""
    nodes = f" on {demand.nodes} node{'s' * (demand.nodes != 1)}" if demand.nodes else ""
    return count + share + kinds + nodes


def _waits(present: Present, job: Job, why: Reason | None) -> str:
    if why is not None:
        return why.text
    about, here, table = present.policy.about, present.cluster.nodes, present.table
    waits = WaitExplainer(present.free(), here, about, about.name, present.now, table=table)
    return waits.explain_wait(job).text


def _blocks(free: Capacity) -> dict[str, int]:
    """The most free GPUs on one node, by kind."""
    blocks = dict.fromkeys(free.kinds, 0)
    for i, node in enumerate(free.cluster.nodes):
        blocks[node.kind] = max(blocks[node.kind], free.on(i))
    return blocks


def _find_moved(present: Present, decided: Plan) -> tuple[tuple[Job, str], ...]:
    """Jobs that a plan moves so that a job can start, with the price."""
    table = present.table
    return tuple(
        (table.jobs[table.row(job)], decided.reasons[job])
        for job, word in decided.blockers.items()
        if word is Blocker.MOVED
    )


def _find_displaced(present: Present, decided: Plan, job: JobId) -> tuple[Job, ...]:
    """Running jobs that a plan stops, moves or shrinks."""
    table = present.table
    jobs = []
    for name, to in decided.changes.items():
        if name == job:
            continue
        was = table.allocations[table.row(name)]
        if was is not None and (to is None or not was.stays(to)):
            jobs.append(table.jobs[table.row(name)])
    return tuple(jobs)
