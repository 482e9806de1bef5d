"""Gives jobs that sleep the devices they sleep on, where a plan gives them others that are as good.

A policy counts GPUs; it need not know that a job goes on at once where it sleeps, and begins again
from a checkpoint, or from nothing, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.core.asleep.sleeping import Sleeping
from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.view import View
from weft.core.state.releasing import devices_of

Device = tuple[str, int]


Changes = dict[JobId, Allocation | None]
Held = dict[Device, list[JobId]]  # the jobs on each device


def align(view: View, plan: Plan, about: About) -> Plan:
    """A plan with sleepers moved back to their own devices as far as that changes nothing else.

    Devices are exchanged with others that the plan starts, or taken where no job is. Policies for
    which it matters which devices they are (`About.ties`) are left alone.
    """
    if not view.asleep or about.ties is Ties.NONE or Controls.HOST in about.controls:
        return plan
    wanted = _misplaced(view, plan)
    if not wanted:
        return plan
    changes = dict(plan.changes)
    held = _held_after(view, changes)
    for job, sleeping in wanted.items():
        _go_home(view, job, sleeping.on, changes, held)
    return replace(plan, changes=changes) if changes != dict(plan.changes) else plan


def decide_beside_sleepers(policy: Policy, view: View) -> Plan:
    """A policy's decision, with jobs that sleep moved back to their own devices.

    One that would lose its work elsewhere waits until it has waited for as long as it had run, and
    another job gets what it would have held. Where none does, it goes on at once.
    """
    mark = view.free.mark()
    plan = align(view, policy.decide(view), policy.about)
    view.free.rollback(mark)
    stranded = find_stranded(view, plan)
    if not stranded:
        return plan
    hidden = np.zeros(len(view.table), dtype=bool)
    hidden[[view.table.row(job) for job in stranded]] = True
    again = align(view, policy.decide(view.without(hidden)), policy.about)
    view.free.rollback(mark)
    at_home = _find_room_at_home(view, again, stranded)
    view.free.rollback(mark)
    left = [job for job in stranded if job not in at_home]
    wakes = [again.wake_at, *(_leaves_at(view, view.asleep[job]) for job in left)]
    again = replace(
        again,
        changes={**again.changes, **at_home},
        wake_at=min((at for at in wakes if at is not None), default=None),
    )
    return again.explained({job: _explain_stranded(view.asleep[job]) for job in left})


def can_leave(view: View, sleeping: Sleeping) -> bool:
    """True if a job loses no more by starting elsewhere than by waiting for where it sleeps."""
    if sleeping.job in view.savers:
        return True
    at = _leaves_at(view, sleeping)
    return at is not None and view.now >= at


def _leaves_at(view: View, sleeping: Sleeping) -> float | None:
    """The time at which a job has slept for as long as it had run; None before it sleeps."""
    if not sleeping.there:
        return None
    return sleeping.since + view.table.ran(view.now).item(view.table.row(sleeping.job))


def _find_room_at_home(view: View, plan: Plan, jobs: Sequence[JobId]) -> dict[JobId, Allocation]:
    """Return the jobs that can go on where they sleep beside what a plan gives.

    Takes the devices.
    """
    view.carry_out(plan.changes)
    homes = {}
    for job in jobs:
        home = view.asleep[job].on
        if _is_up(view, home) and view.free.fits(home):
            view.free.take(home)
            homes[job] = home
    return homes


def _explain_stranded(sleeping: Sleeping) -> Reason:
    text = f"asleep on {sleeping.node}; it waits for its GPUs there to go on"
    return Reason(Blocker.SAID, said=text)


def find_stranded(view: View, plan: Plan) -> list[JobId]:
    """Sleepers that a plan would start elsewhere, and that lose more by it than by waiting."""
    stranded = []
    for job, sleeping in view.asleep.items():
        to, row = plan.changes.get(job), view.table.find(job)
        if to is None or row is None or to.devices == sleeping.on.devices:
            continue
        if not can_leave(view, sleeping):
            stranded.append(job)
    return stranded


def _misplaced(view: View, plan: Plan) -> dict[JobId, Sleeping]:
    misplaced = {}
    for job, to in plan.changes.items():
        sleeping = view.asleep.get(job)
        if to is not None and sleeping is not None and to.devices != sleeping.on.devices:
            misplaced[job] = sleeping
    return misplaced


def _held_after(view: View, changes: Mapping[JobId, Allocation | None]) -> Held:
    """The jobs on each device once these changes are made."""
    held: Held = {}
    for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
        to = changes.get(job.id, on)
        for device in devices_of(to) if to is not None else ():
            held.setdefault(device, []).append(job.id)
    return held


def _go_home(view: View, job: JobId, home: Allocation, changes: Changes, held: Held) -> None:
    """Exchange what a job was given for its home, or do nothing."""
    to = changes[job]
    assert to is not None
    alike = to.gpus == home.gpus and view.cluster.kind_of(to) == view.cluster.kind_of(home)
    if not alike or to.sharing.share < 1.0 or home.sharing.share < 1.0 or not _is_up(view, home):
        return
    theirs, ours = [*devices_of(home)], [*devices_of(to)]
    others = {other for device in theirs for other in held.get(device, ()) if other != job}
    if not others:
        changes[job] = replace(to, slices=home.slices)
        _move(held, ours, theirs, job)
        return
    if len(others) > 1:
        return
    (other,) = others
    given = changes.get(other)
    if given is None or view.holds(other) is not None or given.sharing.share < 1.0:
        return
    if other in view.asleep and view.asleep[other].on.devices == given.devices:
        return  # it sleeps there as well
    same_node = {node for node, _ in theirs} == {node for node, _ in ours}
    if given.devices == home.devices:
        changes[other], changes[job] = (
            replace(given, slices=to.slices),
            replace(to, slices=home.slices),
        )
        _move(held, ours, theirs, job)
        for device in ours:
            held[device] = [other]
    elif same_node and len(home.slices) == len(given.slices) == len(to.slices) == 1:
        _swap_inside(job, other, home, changes, held)


def _swap_inside(job: JobId, other: JobId, home: Allocation, changes: Changes, held: Held) -> None:
    """Exchange single devices with a job that starts on the same node."""
    to, given = changes[job], changes[other]
    assert to is not None
    assert given is not None
    mine, its = {*to.slices[0].gpus}, {*given.slices[0].gpus}
    wanted = {*home.slices[0].gpus}
    node, lacking = home.slices[0].node, sorted(wanted - mine)
    offered = sorted(mine - wanted)
    swaps = dict(zip(lacking, offered, strict=True))
    if any(held.get((node, gpu), [other]) != [other] for gpu in lacking):
        return
    gpus = tuple(sorted((its - {*lacking}) | {swaps[gpu] for gpu in lacking if gpu in its}))
    changes[other] = replace(given, slices=(replace(given.slices[0], gpus=gpus),))
    changes[job] = replace(to, slices=home.slices)
    for gpu in offered:
        held.pop((node, gpu), None)
    for gpu in gpus:
        held[node, gpu] = [other]
    for gpu in wanted:
        held[node, gpu] = [job]


def _is_up(view: View, home: Allocation) -> bool:
    return all(part.node in view.cluster.index for part in home.slices)


def _move(held: Held, ours: Iterable[Device], theirs: Iterable[Device], job: JobId) -> None:
    for device in ours:
        held.pop(device, None)
    for device in theirs:
        held[device] = [job]
