"""Themis: free GPUs are auctioned for a lease to the apps that finish least fairly.

Paper       Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020.
Objective   the worst finish-time fairness of any app: its completion time over that on a
            private part of the cluster; sharing pays for everybody where it is at most 1.
Needs       an estimate of each job's remaining time; `Job.app` where jobs belong together.
Controls    who runs, and how many GPUs jobs get that take several counts.
Cost        O(b G s) a decision for b bidders, G offered GPUs and s sizes a bidder can use.
Deviations  the paper has no public code. Bids are for numbers of GPUs, not for sets of them;
            places are chosen afterwards, on the fewest nodes. Of several jobs in an app the
            longest come first, and the app is taken to end when its work is done by the GPUs
            it has, or with its longest job. A winner keeps the largest number that its gangs
            can use within its part after payment, at least one gang. Leftovers go to apps
            outside the auction in random order, then to bidders. An app of equal fairness
            goes by arrival. `f=0` shows every offer to everybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.memory import recall
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.place.gangs import fewest_nodes
from weft.policies.themis.apps import UNKNOWN_S, App, Crowd, Member
from weft.policies.themis.auction import count_participants, divide, keep

EPS = 1e-6
WHERE = tax.classify(
    tax.Objective.FAIRNESS,
    tax.Knowledge.DURATIONS,
    tax.Preemption.STOPS,
    elasticity=tax.Elasticity.GPUS,
    fairness=tax.Fairness.FINISH_TIME,
)


@dataclass(frozen=True, slots=True)
class ThemisMemory:
    """When each job's lease ends, work done of apps by their ended jobs, and the crowd so far."""

    ends: Mapping[JobId, float] = field(default_factory=dict)
    crowd: Crowd = field(default_factory=Crowd)


@dataclass(frozen=True, slots=True)
class Themis:
    """The worst-off part `1 - f` of the apps bids for free GPUs, held for `lease` seconds."""

    f: float = 0.8
    lease: float = 1200.0

    about = About(
        "themis",
        "Mahajan et al. 2020",
        needs=Needs.REMAINING,
        controls=Controls.COUNT,
        taxonomy=WHERE,
    )

    def __post_init__(self) -> None:
        if not 0.0 <= self.f < 1.0:
            raise InvalidConfig(
                f"themis: f={self.f:g} is not the part of apps that an offer is hidden from",
                hint="0 shows it to everybody, close to 1 to the worst-off app alone",
            )
        if self.lease <= 0.0:
            raise InvalidConfig(f"themis: lease={self.lease:g} must be above 0 seconds")

    def decide(self, view: View) -> Plan:
        """Take back what leases ended on, if anybody else wants it; auction what is free."""
        kept = recall(view, ThemisMemory)
        names = list(map(name_app, view.table.jobs))
        crowd = kept.crowd.advance(view.now, list(dict.fromkeys(names)))
        held = view.held()
        ends = {job: kept.ends.get(job, view.now + self.lease) for job in held}
        expired = self._expired(view, ends) if view.waiting().any() else []
        for job in expired:
            view.free.give(held[job])
        apps = read_apps(view, names, crowd, gone=set(expired))
        target = {job: on for job, on in held.items() if job not in expired}
        cluster = view.cluster.gpus
        unfair = {app.name: app.rho(app.holds, cluster, view.now) for app in apps}
        ranked = sorted(apps, key=lambda app: (-unfair[app.name], app.arrived))
        given = self._auction(view, ranked)
        won = _place(view, given, held)
        leftovers = (app for app in self._others(view, ranked) if app.wants(cluster))
        won |= _hand_out(view, leftovers, won, held)
        target |= won
        lease = view.now + self.lease
        ends = {job: lease if job in won else ends[job] for job in target}
        waiting = len(target) < len(view.table)
        # The leases of jobs that may not be stopped have ended without an end.
        later = [end for end in ends.values() if end > view.now + EPS]
        wake = min(later, default=None) if waiting else None
        plan = Plan.target(view, target)
        return replace(plan, wake_at=wake, memory=ThemisMemory(ends, crowd))

    def _expired(self, view: View, ends: Mapping[JobId, float]) -> list[JobId]:
        rows = view.table
        return [
            job
            for job, end in ends.items()
            if view.now >= end - EPS and rows.jobs[rows.row(job)].preemptible
        ]

    def _auction(self, view: View, ranked: Sequence[App]) -> dict[JobId, int]:
        """GPUs for the jobs of the winners, after payment; the worst-off app comes first."""
        cluster, now = view.cluster.gpus, view.now
        offer = view.free.idle()
        if not ranked or not offer:
            return {}
        most = min(count_participants(len(ranked), self.f), offer)
        bidders = list(islice((app for app in ranked if app.wants(offer)), most))
        sizes, parts = divide(offer, [app.bids(offer, cluster, now) for app in bidders])
        given: dict[JobId, int] = {}
        for app, size, part in zip(bidders, sizes, parts, strict=True):
            if size:
                given |= app.split(keep(size, part, app.useful(size)))
        return given

    def _others(self, view: View, ranked: Sequence[App]) -> list[App]:
        """Apps in the order in which leftovers go to them: those outside first, at random."""
        inside = count_participants(len(ranked), self.f) if ranked else 0
        outside = ranked[inside:]
        order = view.rng.permutation(len(outside))
        return [*(outside[i] for i in order), *ranked[:inside]]


def read_apps(view: View, names: Sequence[str], crowd: Crowd, gone: set[JobId]) -> list[App]:
    """The apps that jobs belong to by `names`, with what they hold, leases that ended apart."""
    table = view.table
    left = np.maximum(np.nan_to_num(view.remaining(), posinf=UNKNOWN_S), 1.0).tolist()
    members: dict[str, list[Member]] = {}
    done: dict[str, float] = {}
    rows = zip(names, table.jobs, table.allocations, left, view.service().tolist(), strict=True)
    for name, job, on, left_s, used in rows:
        holds = 0 if on is None or job.id in gone else on.gpus
        if name in members:
            members[name].append(Member(job, left_s, holds))
            done[name] += used
        else:
            members[name], done[name] = [Member(job, left_s, holds)], used
    apps = []
    for name, jobs in members.items():
        first = min([member.job.submitted for member in jobs])
        apps.append(App(name, tuple(jobs), first, crowd.average(name, first), done[name]))
    return apps


def name_app(job: Job) -> str:
    """The app that a job belongs to; one of its own where it names none."""
    return job.app or f"job {job.id}"


def _place(
    view: View, given: Mapping[JobId, int], held: Mapping[JobId, Allocation]
) -> dict[JobId, Allocation]:
    """Devices for the winners: those they had where the number is the same, else a new place."""
    target: dict[JobId, Allocation] = {}
    for job, gpus in given.items():
        before = held.get(job)
        if before is not None and before.gpus == gpus and view.free.fits(before):
            view.free.take(before)
            target[job] = before
    for job in sorted(given, key=lambda job: -given[job]):
        if job not in target and (on := _find(view, job, given[job])) is not None:
            view.free.take(on)
            target[job] = on
    return target


def _find(view: View, job: JobId, gpus: int) -> Allocation | None:
    asked = view.table.jobs[view.table.row(job)]
    if asked.demand.gpus != gpus:
        asked = replace(asked, demand=replace(asked.demand, gpus=gpus))
    return fewest_nodes(asked, view.free)


def _hand_out(
    view: View,
    apps: Iterable[App],
    won: Mapping[JobId, Allocation],
    held: Mapping[JobId, Allocation],
) -> dict[JobId, Allocation]:
    """What nobody bought, one gang at a time to each app in turn."""
    more: dict[JobId, Allocation] = {}
    if view.free.room() < 1.0 - EPS:
        return more
    lines = [[m.job for m in app.members if not m.holds and m.job.id not in won] for app in apps]
    while any(lines):
        for line in lines:
            if view.free.room() < 1.0 - EPS:
                return more
            job = line.pop(0) if line else None
            if job is not None and job.demand.min <= view.free.room() + EPS:
                more |= _place(view, {job.id: job.demand.min}, held)
    return more
