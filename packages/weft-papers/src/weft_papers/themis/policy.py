"""Themis: auction free GPUs, for a lease, to the apps that finish least fairly.

Paper       Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020.
Objective   the worst finish-time fairness of any app: its completion time over that on a
            private part of the cluster; sharing pays for all apps if it is at most 1.
Needs       an estimate of each job's remaining time; `Job.app` where jobs belong together.
Controls    which jobs run, and how many GPUs elastic jobs get.
Cost        O(b G s) per decision for b bidders, G offered GPUs and s sizes a bidder can use.
Deviations  the paper has no public code. Bids are for numbers of GPUs, not for sets of them;
            places are chosen afterwards, on the fewest nodes, and S is one number for all models
            and for whatever no node holds. Jobs that run bid for more, and leftovers go on to
            those that can grow, which restarts them where they cannot be resized live. Of several
            jobs in an app the longest come first, and the app is taken to end when its work is
            done by the GPUs it has, or with its longest job. A winner keeps the largest number
            that its gangs can use within its part after payment, at least one gang. Leftovers go
            to apps outside the auction in random order, then to bidders. Apps that hold nothing
            are all infinitely unfair: those are ranked by their fairness with the least gang, and
            of equal apps the earlier comes first. Leases end together, at multiples of one and
            half to one and a half of one after they began, and the worst-off bidder has its least
            gang however many others that costs: else a gang of many GPUs waits forever. `f=0`
            shows every offer to all apps.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from math import ceil, floor, log

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.taxonomy import (
    Elasticity,
    Fairness,
    NeededKnowledge,
    Objective,
    Preemption,
    classify,
)
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.pieces.place.resize import resize
from weft_papers.themis.apps import UNKNOWN_S, App, AppJob, Crowd, rank_apps

EPS = 1e-6
ABOUT = About(
    "themis",
    "Mahajan et al. 2020",
    needs=Needs.REMAINING,
    controls=Controls.COUNT,
    taxonomy=classify(
        Objective.FAIRNESS,
        NeededKnowledge.DURATIONS,
        Preemption.STOPS,
        Elasticity.GPUS,
        Fairness.FINISH_TIME,
    ),
)


@frozen
class ThemisMemory:
    """Ends of leases, work done of apps by their ended jobs, and the crowd so far."""

    ends: Mapping[JobId, float] = field(default_factory=dict)
    crowd: Crowd = field(default_factory=Crowd)


@frozen
class Themis:
    """The worst-off fraction `1 - f` of the apps bids for free GPUs, held for `lease` seconds.

    `spread` is S, how many times as long iterations take on GPUs of several nodes.
    """

    f: float = 0.8
    lease: float = 1200.0
    spread: float = 1.0

    about = ABOUT

    def __post_init__(self) -> None:
        if not 0.0 <= self.f < 1.0:
            raise InvalidConfig(
                f"themis: f={self.f:g} is not the part of apps that an offer is hidden from",
                hint="0 shows it to all apps, close to 1 to the worst-off app alone",
            )
        if self.lease <= 0.0:
            raise InvalidConfig(f"themis: lease={self.lease:g} must be above 0 seconds")
        if self.spread < 1.0:
            raise InvalidConfig(f"themis: spread={self.spread:g} must be 1 or more")

    def decide(self, view: View) -> Plan:
        """Take back what leases ended on, if another app wants it; auction what is free."""
        kept = recall(view, ThemisMemory)
        names = list(map(name_app, view.table.jobs))
        crowd = kept.crowd.advance(view.now, list(dict.fromkeys(names)))
        held = view.held()
        lease = self._next_end(view.now)
        ends = {job: kept.ends.get(job, lease) for job in held}
        wanted = any(map(_wants, view.table.jobs, view.table.allocations))
        expired = self._expired(view, ends) if wanted else []
        for job in expired:
            view.free.give(held[job])
        apps = read_apps(view, names, crowd, gone=set(expired))
        target = {job: on for job, on in held.items() if job not in expired}
        cluster = view.cluster.gpus
        ranked = rank_apps(apps, cluster, view.now)
        won = _place(view, self._auction(view, ranked), target, held)
        leftovers = [app for app in self._others(view, ranked) if app.can_use(cluster)]
        won |= _hand_out(view, leftovers, won, held)
        ends |= {job: lease for job in won if job not in target}
        target |= won
        _grow(view, leftovers, target, held)
        # The leases of jobs that may not be stopped have ended without an end.
        later = [end for job, end in ends.items() if job in target and end > view.now + EPS]
        wake = min(later, default=None) if wanted else None
        plan = Plan.target(view, target)
        ends = {job: ends[job] for job in target}
        return replace(plan, wake_at=wake, memory=ThemisMemory(ends, crowd))

    def _next_end(self, now: float) -> float:
        """Return the end of a lease that begins now: all leases end at multiples of one."""
        return round(now / self.lease + 1.0) * self.lease

    def _expired(self, view: View, ends: Mapping[JobId, float]) -> list[JobId]:
        rows = view.table
        return [
            job
            for job, end in ends.items()
            if view.now >= end - EPS and rows.jobs[rows.row(job)].stoppable
        ]

    def _auction(self, view: View, ranked: Sequence[App]) -> dict[JobId, int]:
        """GPUs for the jobs of the winners, after payment; the worst-off app comes first."""
        cluster, now = view.cluster.gpus, view.now
        offer = view.free.idle()
        if not ranked or not offer:
            return {}
        most = min(count_participants(len(ranked), self.f), offer)
        bidders = list(islice((app for app in ranked if app.can_use(offer)), most))
        node = max((machine.gpus for machine in view.cluster.nodes), default=0)
        bids = [app.bids(offer, cluster, now, node, self.spread) for app in bidders]
        sizes, parts = divide(offer, bids)
        given: dict[JobId, int] = {}
        for app, size, part in zip(bidders, sizes, parts, strict=True):
            if size:
                given |= app.split(useful_share(size, part, app.useful(size)))
        return given

    def _others(self, view: View, ranked: Sequence[App]) -> list[App]:
        """Apps in the order in which leftovers go to them: those outside first, at random."""
        inside = count_participants(len(ranked), self.f) if ranked else 0
        outside = ranked[inside:]
        order = view.rng.permutation(len(outside))
        return [*(outside[i] for i in order), *ranked[:inside]]


def _wants(job: Job, on: Allocation | None) -> bool:
    """Return true if a job waits, or could use more than it holds."""
    return on is None or (on.gpus < job.demand.max and job.stoppable)


def read_apps(
    view: View, names: Sequence[str], crowd: Crowd, gone: Container[JobId] = ()
) -> list[App]:
    """The apps that jobs belong to by `names`, with what they hold, leases that ended apart."""
    table = view.table
    left = np.maximum(np.nan_to_num(view.remaining(), posinf=UNKNOWN_S), 1.0).tolist()
    members: dict[str, list[AppJob]] = {}
    done: dict[str, float] = {}
    rows = zip(names, table.jobs, table.allocations, left, view.service().tolist(), strict=True)
    for name, job, on, left_s, used in rows:
        holds = 0 if on is None or job.id in gone else on.gpus
        if name in members:
            members[name].append(AppJob(job, left_s, holds))
            done[name] += used
        else:
            members[name], done[name] = [AppJob(job, left_s, holds)], used
    apps = []
    for name, jobs in members.items():
        first = min([member.job.submitted for member in jobs])
        apps.append(App(name, tuple(jobs), first, crowd.average(name, first), done[name]))
    return apps


def name_app(job: Job) -> str:
    """The app that a job belongs to; one of its own where it names none."""
    return job.app or f"job {job.id}"


def _place(
    view: View,
    given: Mapping[JobId, int],
    target: Mapping[JobId, Allocation],
    held: Mapping[JobId, Allocation],
) -> dict[JobId, Allocation]:
    """Devices for the winners, beside those they have in `target`, or had."""
    placed: dict[JobId, Allocation] = {}
    before = {job: on.gpus for job, on in held.items()}
    for job in sorted(given, key=lambda job: (before.get(job) != given[job], -given[job])):
        if job in target:
            view.free.give(target[job])
        on = _find(view, job, given[job], held.get(job)) or target.get(job)
        if on is not None:
            view.free.take(on)
            placed[job] = on
    return placed


def _find(view: View, job: JobId, gpus: int, before: Allocation | None) -> Allocation | None:
    """Find that many devices, those it had before among them if they are free."""
    asked = view.table.jobs[view.table.row(job)]
    if before is not None and view.free.fits(before):
        return before if before.gpus == gpus else resize(before, gpus, view.free)
    if asked.demand.gpus != gpus:
        asked = replace(asked, demand=replace(asked.demand, gpus=gpus))
    return fewest_nodes(asked, view.free)


def _hand_out(
    view: View,
    apps: Sequence[App],
    won: Mapping[JobId, Allocation],
    held: Mapping[JobId, Allocation],
) -> dict[JobId, Allocation]:
    """GPUs that no app bought, one gang at a time to each app in turn."""
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
                more |= _place(view, {job.id: job.demand.min}, {}, held)
    return more


def _grow(
    view: View,
    apps: Sequence[App],
    target: dict[JobId, Allocation],
    held: Mapping[JobId, Allocation],
) -> None:
    """Give GPUs that no waiting job can use, one at a time to each app; `target` changes."""
    lines = [[m.job for m in app.members if m.job.id in target and len(m.more) > 0] for app in apps]
    while any(lines) and view.free.idle():
        for line in lines:
            while line and not _add_one(view, line[0], target, held):
                del line[0]


def _add_one(
    view: View, job: Job, target: dict[JobId, Allocation], held: Mapping[JobId, Allocation]
) -> bool:
    """Add one GPU to a job if it can use another; return true if it has."""
    on = target[job.id]
    if on.gpus >= job.demand.max or not view.free.idle():
        return False
    view.free.give(on)
    before = held.get(job.id)
    again = before is not None and before.gpus == on.gpus + 1 and view.free.fits(before)
    place = before if again else resize(on, on.gpus + 1, view.free)
    view.free.take(place or on)
    target[job.id] = place or on
    return place is not None


# ---- The arbiter: which apps see an offer, and the partial allocation among bidders
#
# Partial allocation (Cole, Gkatzelis and Goel, EC 2013) gives every bidder a part of its share
# of the proportionally fair division; the rest is withheld, as the price of what its presence
# costs the others, so that no app gains by bidding untruthfully.


NOTHING = 1e-9  # what no GPU at all is worth: the product of values must not vanish
TINY = 1e-9

Bids = Mapping[int, float]  # GPUs to the value 1 / rho with them
Worth = dict[int, float]  # the logarithm of that, in order of GPUs


def count_participants(apps: int, f: float) -> int:
    """Return the number of worst-off apps that see an offer."""
    return max(1, ceil((1.0 - f) * apps - TINY))


def divide(offer: int, bids: Sequence[Bids]) -> tuple[list[int], list[float]]:
    """GPUs of each bidder in the proportionally fair division, and the part c it may keep."""
    tables = [_table(bid, offer) for bid in bids]
    if tables and len(tables[0]) > 1:
        tables[0][0] *= len(tables) + 1  # no number of others is worth more than the worst-off app
    before = _stack(tables, offer)
    behind = _stack(tables[::-1], offer)[::-1]
    sizes = _trace(tables, before, offer)
    logs = [table[size] for table, size in zip(tables, sizes, strict=True)]
    # The best sums of all others, which share the offer: those before each bidder and behind it.
    without = (before[:-1] + behind[1:, ::-1]).max(axis=1).tolist()
    whole = sum(logs)
    parts = [
        min(float(np.exp(whole - own - rest)), 1.0) for own, rest in zip(logs, without, strict=True)
    ]
    return sizes, parts


def useful_share(size: int, part: float, useful: Sequence[int]) -> int:
    """Whole GPUs that a winner keeps: the largest useful number within its part, at least one."""
    within = [n for n in useful if 0 < n <= floor(part * size + TINY)]
    return max(within) if within else min((n for n in useful if 0 < n <= size), default=0)


def _table(bid: Bids, offer: int) -> Worth:
    """Log of the value of useful numbers of GPUs up to the offer, from none on."""
    useful = {gpus: log(max(bid[gpus], NOTHING)) for gpus in sorted(bid) if 0 < gpus <= offer}
    return {0: log(NOTHING), **useful}


def _stack(tables: Sequence[Worth], offer: int) -> Floats:
    """Best sums of the first tables, by GPUs spent at most; one more entry than tables."""
    sums = np.zeros((len(tables) + 1, offer + 1))
    for before, best, table in zip(sums, sums[1:], tables, strict=False):
        np.add(before, table[0], out=best)
        for gpus, worth in table.items():
            if gpus:
                more = best[gpus:]
                np.maximum(more, before[:-gpus] + worth, out=more)
    return sums


def _trace(tables: Sequence[Worth], sums: Floats, offer: int) -> list[int]:
    """The numbers that make up the best sum; of equals the smallest, for the latest bidder."""
    sizes, left = [0] * len(tables), offer
    for i in range(len(tables) - 1, -1, -1):
        before = sums[i]
        known = {n: float(before[left - n]) + w for n, w in tables[i].items() if n <= left}
        most = max(known.values()) - 1e-12
        sizes[i] = next(n for n, w in known.items() if w >= most)
        left -= sizes[i]
    return sizes
