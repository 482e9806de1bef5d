"""Deadlines that are promises, around any policy.

A job that says `deadline: {by: 8h, or: decline}` is admitted only if it and all jobs that were
promised theirs can end in time (`weft.pieces.size.promised`); with `or: warn` it runs all the same.
A job that must run now to keep a promise does, and takes the places of jobs that may be stopped;
the inner policy decides about all others, including promised jobs that could begin later. A policy
that must be shown every job promises deadlines itself, where it knows what it can keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Job, JobId, Or, Tier
from weft.core.plan.about import About, Controls, Needs, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.taxonomy import NeededKnowledge, Objective, Preemption, declare
from weft.core.plan.view import PromiseTerms, View
from weft.core.state.cells import TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.size.promised import Promise, PromiseLedger, PromiseMemory, SlotTerms, check_terms
from weft.pieces.wrap.sub_cluster import decide_among, devices_of
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper

Changes = dict[JobId, Allocation | None]
SHARED = Controls.SHARE | Controls.TIER


@frozen
class KeepPromises(Wrapper):
    """Admit jobs by their deadlines, and keep what was promised whatever the policy does.

    `slot` is the length of a time slot of promises in seconds, `quantile` the quantile of predicted
    lengths that is used, and `restarts` how many unplanned restarts a promise survives.
    """

    slot: float = 60.0
    quantile: float = 0.9
    restarts: int = 2

    adds = declare(
        Objective.DEADLINES | Objective.GUARANTEES, NeededKnowledge.DURATIONS, Preemption.STOPS
    )

    def __post_init__(self) -> None:
        check_terms("promise", self.slot, self.quantile, self.restarts)

    @property
    def about(self) -> About:
        """The inner policy's; lengths are needed as well."""
        about = may_idle(self.inner.about, "GPUs are kept for a job that was promised a deadline")
        return replace(about, needs=about.needs | Needs.REMAINING)

    def decide(self, view: View) -> Plan:
        """Jobs that must run do; the inner policy decides the rest."""
        kept = view.memory if isinstance(view.memory, PromiseMemory) else None
        memory = kept or PromiseMemory(inner=view.memory)
        inner = replace(view, memory=memory.inner, promises=None)
        if self.inner.about.whole:
            terms = PromiseTerms(self.slot, self.quantile, self.restarts)
            return ask(self.inner, replace(inner, promises=terms))
        firm = any(job.deadline_or is not Or.UNSAID for job in view.table.jobs)
        firm = firm or bool(memory.promises or memory.refused)
        if not firm or view.knowledge.predictor is None:
            return ask(self.inner, inner)
        sized = Controls.COUNT in self.inner.about.controls
        book = PromiseLedger(
            view, memory, SlotTerms(self.slot, self.quantile, self.restarts, sized=sized)
        )
        jobs = view.table.jobs
        book.admit([row for row in book.newcomers() if jobs[row].deadline_or is not Or.UNSAID])
        mark = view.free.mark()
        try:
            first, hidden = _hold(view, book)
            shown = _alone(inner, book) if SHARED & self.inner.about.controls else inner
            plan = decide_among(self.inner, _rest(shown, first, hidden))
        finally:
            view.free.rollback(mark)
        wakes = [at for at in (book.due(), plan.wake_at) if at is not None]
        changes = {**first, **plan.changes}
        return replace(
            plan,
            changes={job: to for job, to in changes.items() if to != view.holds(job)},
            rejected={**_unpromised(plan.rejected, book), **book.declined},
            reasons={**plan.reasons, **book.warned},
            wake_at=min(wakes, default=None),
            memory=book.memory(plan.memory),
            promised=plan.promised | book.promised(),
        )


def keep_promises(policy: Policy, view: View) -> Policy:
    """The policy with the promises that a view asks for; itself where it asks for none."""
    terms = view.promises
    if terms is None:
        return policy
    return KeepPromises(policy, terms.slot_s, terms.quantile, terms.restarts)


def _alone(view: View, book: PromiseLedger) -> View:
    """The view with no job beside one that was promised something: it would be slower."""
    table = view.table.pick(np.ones(len(view.table), dtype=bool))
    for row in book.kept:
        table.keep_alone(row)
    return replace(view, table=table)


def _unpromised(rejected: Mapping[JobId, str], book: PromiseLedger) -> dict[JobId, str]:
    """Without jobs that have a promise: a policy inside that is not shown all would decline it."""
    promised = {book.view.job(row).id for row in {*book.kept, *book.owed}}
    return {job: why for job, why in rejected.items() if job not in promised}


def _hold(view: View, book: PromiseLedger) -> tuple[Changes, Bools]:
    """Return changes that let jobs with a promise run, in the ledger as well, and their rows.

    Those with the earliest deadlines first.
    """
    changes: Changes = {}
    hidden = np.array([job.id in book.declined for job in view.table.jobs], dtype=bool)
    due = {row: promise for row, promise in book.kept.items() if promise.schedule.at(view.now)}
    hidden[list(due)] = True
    victims = _victims(view, hidden)
    sizes = {row: promise.schedule.at(view.now) for row, promise in due.items()}
    by_deadline = sorted(due, key=lambda row: (view.job(row).deadline or 0.0, row))
    wide = [row for row in by_deadline if view.table.held[row] > sizes[row]]
    for row in by_deadline:
        on = view.allocation(row)
        if on is not None and on.gpus >= sizes[row]:
            continue
        if on is not None:
            view.free.give(on)
        job = _sized(view.job(row), due[row].kind, sizes[row])
        to = _make_room(view, job, victims, changes)
        if to is None:
            to = _take_surplus(view, job, wide, due, changes)
        to = on if to is None else to
        if to is not None:
            view.free.take(to)
            changes[job.id] = to
            _send_away(view, to, victims, changes)
    return changes, hidden


def _sized(job: Job, kind: str, gpus: int) -> Job:
    """The job as it must run now, at exactly this size."""
    demand = replace(job.demand, gpus=gpus, min=gpus, max=gpus, kinds=(kind,))
    return replace(job, demand=demand, plans=())


def _take_surplus(
    view: View, job: Job, wide: list[int], due: Mapping[int, Promise], changes: Changes
) -> Allocation | None:
    """A place for a job beside promised jobs that shrink to the size that their promise needs.

    The one with the latest deadline shrinks first. If even all of them leave too little, none does.
    """
    mark, shrunk = view.free.mark(), dict[int, Allocation]()
    for row in reversed(wide):
        on = view.allocation(row)
        assert on is not None
        view.free.give(on)
        smaller = _sized(view.job(row), due[row].kind, due[row].schedule.at(view.now))
        least = fewest_nodes(smaller, view.free)
        if least is None:
            view.free.take(on)
            continue
        view.free.take(least)
        shrunk[row] = least
        if (to := fewest_nodes(job, view.free)) is not None:
            wide[:] = [row for row in wide if row not in shrunk]
            changes |= {view.job(row).id: least for row, least in shrunk.items()}
            return to
    view.free.rollback(mark)
    return None


def _send_away(view: View, to: Allocation, victims: list[int], changes: Changes) -> None:
    """Stop opportunistic jobs on these devices: they need no room, and would slow it down."""
    taken = devices_of([to])
    for row in list(victims):
        on = view.allocation(row)
        assert on is not None
        loose = on.sharing.tier is Tier.OPPORTUNISTIC
        if loose and not taken.isdisjoint(devices_of([on])):
            view.free.give(on)
            changes[view.job(row).id] = None
            victims.remove(row)


def _make_room(view: View, job: Job, victims: list[int], changes: Changes) -> Allocation | None:
    """A place, if need be at the cost of others: the fewest, those that lose least first."""
    gone: list[int] = []
    to = fewest_nodes(job, view.free)
    while to is None and victims:
        row = victims.pop(0)
        on = view.allocation(row)
        assert on is not None
        view.free.give(on)
        gone.append(row)
        to = fewest_nodes(job, view.free)
    if to is not None:
        view.free.take(to)
    for row in reversed(gone):
        on = view.allocation(row)
        assert on is not None
        if view.free.fits(on):
            view.free.take(on)
            victims.insert(0, row)
        else:
            changes[view.job(row).id] = None
    if to is not None:
        view.free.give(to)
    return to


def _victims(view: View, hidden: Bools) -> list[int]:
    """Running rows that may be stopped: of low priority first, then those that have done least."""
    rows = np.flatnonzero(view.running() & view.preemptible() & ~hidden)
    keys = view.table.column(TableColumns.PRIORITY)[rows], view.service()[rows]
    order = np.lexsort(keys[::-1])
    return [int(row) for row in rows[order]]


def _rest(view: View, first: Mapping[JobId, Allocation | None], hidden: Bools) -> View:
    """The view of the inner policy, beside what was decided."""
    stopped = [view.table.row(job) for job, to in first.items() if to is None]
    after = view.released(np.array(stopped, dtype=np.intp)) if stopped else view
    return after.restrict(~hidden, first)
