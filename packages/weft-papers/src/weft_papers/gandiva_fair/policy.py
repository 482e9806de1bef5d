"""Gandiva_fair: users share GPU time by stride, balanced over servers, and trade generations.

Paper       Chaudhary et al., "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters
            for Deep Learning", EuroSys 2020.
Objective   GPU time of every user in proportion to its weight; by trading, more throughput for
            users who gain from fast GPUs, and less for none.
Needs       nothing; with several kinds, speeds on each from beliefs.
Controls    which jobs run in each quantum, on which server and kind.
Cost        O(n log n + n servers) per quantum for n active jobs.
Deviations  the paper gives no code; where it is silent: the stride of a gang is its GPUs over
            its tickets, tickets are the GPUs a job is entitled to, a job moves at most once in
            `interval` seconds and only for a gain in load worth more than `migration`
            seconds of that interval, and large gangs go before servers of equal pass. Passes
            grow by GPU time really attained, so that a quantum cut short is not charged.
            A user's jobs are placed on kinds in proportion to what the user is entitled to there.
            Jobs that sleep are bound to their GPUs, so tickets are balanced over these too.
            Elastic jobs are rigid; a job that asks for part of a device gets a whole one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from weft.core.asleep.align import can_leave
from weft.core.errors import InvalidConfig
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.formulas.fairness.shares import check_weights
from weft.frozen import frozen
from weft_papers.gandiva_fair.devices import (
    HomeBindings,
    allocate,
    find_bindings,
    free_one,
    is_at_home,
)
from weft_papers.gandiva_fair.homes import Home, Homes
from weft_papers.gandiva_fair.stride import StrideGang, choose_split
from weft_papers.gandiva_fair.trading import trade_all
from weft_papers.gandiva_fair.users import demands_of, entitle, weights_in

EPS = 1e-6
TINY = 1e-3  # tickets of a job whose user is entitled to nothing there: it runs on leftovers
Due = Mapping[str, Mapping[str, float]]  # GPUs by user and kind
Passes = tuple[dict[JobId, float], dict[NodeId, float]]  # of jobs, and of servers
WHERE = tax.classify(
    tax.Objective.FAIRNESS,
    tax.NeededKnowledge.SPEEDS,
    tax.Preemption.SUSPENDS | tax.Preemption.MOVES,
    tax.Heterogeneity.SPEEDS,
    tax.DeviceSharing.TURNS,
    tax.Fairness.USERS,
)


@frozen
class GandivaFairMemory:
    """Homes, passes of jobs and servers, GPU time charged so far, and when jobs last moved."""

    home: dict[JobId, Home] = field(default_factory=dict)
    passed: dict[JobId, float] = field(default_factory=dict)
    servers: dict[NodeId, float] = field(default_factory=dict)
    charged: dict[JobId, float] = field(default_factory=dict)
    moved: dict[JobId, float] = field(default_factory=dict)
    ends: float = -np.inf


@frozen
class GandivaFair:
    """Every user gets GPU time by weight; jobs are suspended and resumed every quantum.

    `weights` are `user=number` joined by `/`, and go before those of the view. `quantum` is the
    seconds of a turn, `hand_over` what a suspended job needs to continue where it ran. `interval`
    is the least time between two moves of a job, `migration` what a move must be worth.
    """

    quantum: float = 60.0
    weights: Mapping[str, float] = field(default_factory=dict)
    trading: bool = True
    balance: bool = True
    interval: float = 600.0
    migration: float = 30.0
    hand_over: float = 0.5

    def __post_init__(self) -> None:
        if self.quantum <= 0.0 or self.interval <= 0.0:
            raise InvalidConfig(
                f"gandiva_fair: quantum={self.quantum:g} and interval={self.interval:g} must be "
                "above 0 seconds"
            )
        check_weights("gandiva_fair: weights", self.weights)

    @property
    def about(self) -> About:
        """Jobs are suspended to the memory of their server."""
        return About(
            "gandiva_fair",
            "Chaudhary et al. 2020",
            resume_s=self.hand_over,
            weighs=True,
            idles="jobs take turns on their nodes",
            ties=Ties.NONE,
            taxonomy=WHERE,
        )

    def decide(self, view: View) -> Plan:
        """Charge the past, entitle users, find homes, balance them, choose the jobs that run."""
        kept = recall(view, GandivaFairMemory)
        jobs = {job.id: job for job in view.table.jobs}
        if not jobs or not view.cluster.nodes:
            return Plan(memory=GandivaFairMemory())
        homes = _homes(view, kept, jobs)
        due = _entitlements(view, jobs, weights_in(view, self.weights))
        if self.trading:
            _trade(view, due)
        moved = {job: at for job, at in kept.moved.items() if job in jobs}
        self._settle(view, homes, jobs, due)
        homes.set_tickets(_tickets(homes, jobs, due))
        bound = find_bindings(view, homes)
        if self.balance:
            self._rebalance(view, homes, jobs, moved, bound)
        service = dict(zip(jobs, view.service().tolist(), strict=True))
        passes = self._passes(kept, homes, service)
        over = view.now >= kept.ends - EPS
        chosen = self._choose(view, homes, bound, passes, over=over)
        ends = view.now + self.quantum if over else kept.ends
        memory = GandivaFairMemory(homes.home, *passes, service, moved, ends)
        target = allocate(view, homes, bound, chosen)
        plan = Plan.target(view, target)
        waiting = len(target) < len(jobs)
        return Plan(plan.changes, wake_at=ends if waiting else None, memory=memory)

    def _settle(self, view: View, homes: Homes, jobs: Mapping[JobId, Job], due: Due) -> None:
        """Homes for newcomers: the kind where their user has most left, the least loaded server."""
        held: dict[tuple[str, str], float] = {}
        for settled, home in homes.home.items():
            key = jobs[settled].owner, homes.kind_of(settled)
            held[key] = held.get(key, 0.0) + sum(home.values())
        for job in jobs.values():
            if job.id in homes.home:
                continue
            user, gpus = job.owner, job.demand.gpus
            for kind in _by_room(view.cluster.kinds, job, held, due):
                node = homes.least_loaded(gpus, kind)
                if node is not None:
                    homes.set_home(job.id, node, min(due[kind][user], gpus))
                    held[user, kind] = held.get((user, kind), 0.0) + gpus
                    break

    def _rebalance(
        self,
        view: View,
        homes: Homes,
        jobs: Mapping[JobId, Job],
        moved: dict[JobId, float],
        bound: HomeBindings,
    ) -> None:
        """Move jobs off servers that are loaded above the average, one a server and decision.

        Inside a server off GPUs that are, one a decision.
        """
        held, least_gain = view.held(), self.migration / self.interval
        rested = {
            job: view.now - moved.get(job, -np.inf) >= self.interval
            and (job not in held or jobs[job].stoppable)
            and (job not in view.asleep or can_leave(view, view.asleep[job]))
            for job in homes.home
        }
        for kind in view.cluster.kinds:
            for _ in range(len(homes.nodes)):
                move = homes.best_move(kind, rested, least_gain)
                if move is None:
                    break
                job, to = move
                homes.set_home(job, {to: sum(homes.home[job].values())}, homes.tickets[job])
                moved[job], rested[job] = view.now, False
                if job in bound.on:
                    bound.release(job, homes.tickets[job])
        if (freed := free_one(view, homes, bound, rested, least_gain)) is not None:
            moved[freed] = view.now

    def _passes(
        self, kept: GandivaFairMemory, homes: Homes, service: Mapping[JobId, float]
    ) -> Passes:
        """Passes after what was attained since; newcomers start at the least one."""
        passed: dict[JobId, float] = {}
        used: dict[NodeId, float] = {}
        for job, home in homes.home.items():
            if job not in kept.passed:
                continue
            quanta = (service[job] - kept.charged.get(job, 0.0)) / self.quantum
            passed[job] = kept.passed[job] + quanta / max(homes.tickets[job], TINY)
            if len(home) == 1:
                (node,) = home
                used[node] = used.get(node, 0.0) + quanta
        servers = self._server_passes(kept, homes, used)
        central = [*servers.values(), *(passed[j] for j in passed if len(homes.home[j]) > 1)]
        _begin(homes, passed, min(central, default=0.0))
        return passed, servers

    def _server_passes(
        self, kept: GandivaFairMemory, homes: Homes, used: Mapping[NodeId, float]
    ) -> dict[NodeId, float]:
        small: dict[NodeId, float] = {}
        for job, home in homes.home.items():
            if len(home) == 1:
                (node,) = home
                small[node] = small.get(node, 0.0) + homes.tickets[job]
        least = min(kept.servers.values(), default=0.0)
        return {
            node: kept.servers.get(node, least) + used.get(node, 0.0) / max(tickets, TINY)
            for node, tickets in small.items()
        }

    def _choose(
        self, view: View, homes: Homes, bound: HomeBindings, passes: Passes, *, over: bool
    ) -> list[JobId]:
        """The jobs that run now. In the middle of a quantum they go on; others fill the gaps."""
        passed, servers = passes
        held, order = view.held(), {job.id: i for i, job in enumerate(view.table.jobs)}
        gangs = [
            StrideGang(
                job,
                home,
                passed[job],
                order[job],
                pinned=job in held
                and (not over or not view.job(order[job]).stoppable)
                and is_at_home(held[job], home),
                devices=bound.devices(job),
            )
            for job, home in homes.home.items()
        ]
        free = {node: machine.gpus for node, machine in homes.nodes.items()}
        return [gang.id for gang in choose_split(gangs, free, servers)]


def _by_room(
    kinds: Sequence[str], job: Job, held: Mapping[tuple[str, str], float], due: Due
) -> Sequence[str]:
    """The kinds that a job may use, the one first where its user has most left."""
    user, gpus, wanted = job.owner, job.demand.gpus, job.demand.kinds
    usable = [kind for kind in kinds if kind in wanted] if wanted else kinds
    if len(usable) < 2:
        return usable

    def crowded(kind: str) -> float:
        return (held.get((user, kind), 0.0) + gpus) / max(due[kind][user], EPS)

    return sorted(usable, key=crowded)


def _begin(homes: Homes, passed: dict[JobId, float], first: float) -> None:
    """Passes of newcomers: large gangs `first`, others the least beside them."""
    beside: dict[NodeId, float] = {}
    for job, home in homes.home.items():
        if job in passed:
            continue
        node = next(iter(home))
        if len(home) > 1:
            passed[job] = first
            beside |= {n: min(beside[n], first) for n in home if n in beside}
            continue
        if node not in beside:  # newcomers have the least there is, and change nothing
            known = (passed[j] for j in homes.residents(node) if j in passed)
            beside[node] = min(known, default=0.0)
        passed[job] = beside[node]


def _homes(view: View, kept: GandivaFairMemory, jobs: Mapping[JobId, Job]) -> Homes:
    """Homes so far; what runs is at home where it runs."""
    homes = Homes(view.cluster.nodes)
    held = view.held()
    for job in jobs:
        home = kept.home.get(job)
        if home is not None and all(
            node in homes.nodes and size <= homes.nodes[node].gpus for node, size in home.items()
        ):
            homes.set_home(job, home)
        if job in held and (job not in homes.home or not jobs[job].stoppable):
            homes.set_home(job, {part.node: len(part.gpus) for part in held[job].slices})
    return homes


def _entitlements(
    view: View, jobs: Mapping[JobId, Job], weights: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """GPUs by kind and user: the same part of every kind."""
    total = view.cluster.gpus
    due = entitle(total, demands_of(list(jobs.values())), weights)
    return {
        kind: {user: gpus * part / total for user, part in due.items()}
        for kind, gpus in view.cluster.gpus_by_kind.items()
    }


def _trade(view: View, due: dict[str, dict[str, float]]) -> None:
    """Let users trade GPUs of one kind against another by the speeds of their jobs."""
    kinds = view.cluster.kinds
    if len(kinds) < 2 or view.beliefs is None:
        return
    rates = np.nan_to_num(np.array(view.beliefs.rates(view.table, kinds), dtype=float), nan=1.0)
    own: dict[str, dict[str, float]] = {}
    weight: dict[str, float] = {}
    for row, job in enumerate(view.table.jobs):
        user, size = job.owner, float(job.demand.gpus)
        usable = [not job.demand.kinds or kind in job.demand.kinds for kind in kinds]
        if not all(usable) or not (rates[row] > 0.0).all():
            continue  # a job bound to its kinds says nothing about what its user gains
        mean = own.setdefault(user, dict.fromkeys(kinds, 0.0))
        weight[user] = weight.get(user, 0.0) + size
        for i, kind in enumerate(kinds):
            mean[kind] += size * float(rates[row, i] / rates[row].min())
    for user, mean in own.items():
        for kind in kinds:
            mean[kind] /= weight[user]
    speed = {kind: sum(mean[kind] for mean in own.values()) for kind in kinds}
    trade_all(due, sorted(kinds, key=lambda kind: speed[kind]), own)


def _tickets(homes: Homes, jobs: Mapping[JobId, Job], due: Due) -> dict[JobId, float]:
    """GPUs each job is entitled to where it lives; what a user cannot use goes to the others."""
    here: dict[str, list[tuple[JobId, str, int]]] = {}
    for job, home in homes.home.items():
        kind = homes.nodes[next(iter(home))].kind
        here.setdefault(kind, []).append((job, jobs[job].owner, sum(home.values())))
    room: dict[str, float] = {}
    for node in homes.nodes.values():
        room[node.kind] = room.get(node.kind, 0.0) + node.gpus
    tickets: dict[JobId, float] = {}
    for kind, living in here.items():
        wanted: dict[str, float] = {}
        for _, user, size in living:
            wanted[user] = wanted.get(user, 0.0) + size
        weights = {user: max(due[kind].get(user, 0.0), TINY) for user in wanted}
        given = entitle(room[kind], wanted, weights)
        for job, user, size in living:
            tickets[job] = max(given[user] * size / wanted[user], TINY)
    return tickets
