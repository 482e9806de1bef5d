"""Lyra: elastic jobs on loaned machines: base workers shortest first, flexible ones by knapsack.

Paper       Li et al., "Lyra: Elastic scheduling for deep learning clusters", EuroSys 2023.
Objective   mean completion time and queueing, on machines that an inference cluster lends and
            takes back, with few jobs stopped when it does.
Needs       an estimate of each job's remaining time, unless `order=fifo`; beliefs about goodput
            where there are any, else speed in proportion to GPUs.
Controls    which jobs run, on how many GPUs between what a job needs and what it can use, and
            where.
Cost        O(n log n) to order n waiting jobs and O(nodes) for each that starts; the knapsack
            O(free GPUs x sizes) by dynamic programming; O(loaned nodes x jobs on them) for each
            machine given back.
Deviations  a job's least size is its base demand, and a worker is one GPU: nothing says how many a
            worker has. In units of two and four GPUs jobs take 1.000 and 1.004 times as long
            (`python -m weft_papers.lyra.published --workers --quick --seeds 3`). The policy does
            not decide how many machines are lent: the loan is a fact, its owner's needs known
            when an interval begins. Only simulations have loans; a live service drains the machines
            that a person names: chosen at random, they stop 1.29 times as many jobs as by the
            paper's cost. A gang is of one kind here, as every engine starts them, so flexible
            workers use loaned machines of the kind of the base ones: with loaned GPUs of another
            kind jobs take 1.89 h on average, else 1.72 h (`python -m weft_papers.lyra.published`);
            slower ones count as others in the knapsack. Stopped jobs keep their progress. Ties of
            the server preemption cost go to fewest jobs, which repairs some of its mistakes;
            `reclaim=exact` searches for the best set. Gangs go on as few nodes as possible, own
            ones before loaned ones before both. A job that takes a part of a GPU is never elastic.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import About, Controls, Needs, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft_papers.lyra.reclaim import Rule, choose_servers
from weft_papers.lyra.workers import (
    Parts,
    allocation_of,
    believed_speeds,
    choose_extra,
    count_of,
    devices_by_node,
    join,
    place_base,
    place_flexible,
    split,
    time_saved,
)

WHERE = classify(
    Objective.COMPLETION_TIME | Objective.UTILIZATION,
    NeededKnowledge.DURATIONS | NeededKnowledge.SPEEDS,
    Preemption.RESIZES | Preemption.STOPS,
    Elasticity.GPUS,
)


@frozen
class Lyra:
    """Base workers to the shortest jobs first, then flexible ones to the jobs that save most time.

    `order` is that of waiting jobs, `scale` false gives base workers alone. `reclaim` chooses the
    machines to give back: by server preemption cost, by exact search, by fewest jobs, or at random.
    A change of size costs `resize_s` seconds.
    """

    order: Literal["sjf", "fifo"] = "sjf"
    scale: bool = True
    reclaim: Rule = "cost"
    resize_s: float = 0.0

    @property
    def about(self) -> About:
        """Reads remaining times unless jobs go in order of arrival."""
        return About(
            "lyra",
            "Li et al. 2023",
            needs=Needs.NOTHING if self.order == "fifo" else Needs.REMAINING,
            controls=Controls.COUNT,
            ties=Ties.NONE,
            idles="" if self.scale else "no job gets more than its base workers",
            taxonomy=WHERE,
            resize_s=self.resize_s,
        )

    def decide(self, view: View) -> Plan:
        """Give back what is wanted, start by base demand, hand out the rest."""
        if view.empty:
            return Plan()
        desk = Allocator(view, estimates=self.order == "sjf")
        if view.recalled:
            desk.give_back(view.recalled, self.reclaim)
        desk.set_flexible_aside()
        desk.start_waiting()
        if self.scale:
            desk.hand_out()
        return desk.plan()


# ---- One decision of Lyra in the making: which job holds what, step by step, in the ledger of the
# view


UNKNOWN_S = 86_400.0  # what a job of unknown length is taken to need


class Allocator:
    """Whole devices of rows (`held`), and those of them that are set aside (`flexible`)."""

    def __init__(self, view: View, *, estimates: bool) -> None:
        self._view, self._free = view, view.free
        nodes = view.cluster.nodes
        self._loaned = [node.loaned for node in nodes]
        self._open: dict[str, list[int]] = {kind: [] for kind in view.cluster.kinds}
        for i, node in enumerate(nodes):
            self._open[node.kind].append(i)
        self._held: dict[int, Parts] = {}
        self._flexible: dict[int, Parts] = {}
        self._base: dict[int, Parts] = {}
        self._shared: dict[int, Allocation] = {}
        for row, on in enumerate(view.table.allocations):
            if on is None:
                continue
            if view.job(row).demand.share < 1.0:
                self._shared[row] = on
            else:
                self._held[row] = devices_by_node(on, view.cluster)
        self._seconds = _seconds_at_base(view) if estimates else np.ones(len(view.table))
        self._in_order = not estimates
        self._firm = ~view.preemptible()

    # ---- machines that are wanted back

    def give_back(self, count: int, rule: Rule) -> None:
        """Empty that many loaned machines; jobs go on if enough of them is elsewhere."""
        loaned = [i for i, lent in enumerate(self._loaned) if lent]
        going = set(choose_servers(rule, *self._on_loan(loaned), count, self._view.rng))
        for row, parts in list(self._held.items()):
            lost = {node: mask for node, mask in parts.items() if node in going}
            if not lost or self._firm[row]:
                continue
            kept = {node: mask for node, mask in parts.items() if node not in going}
            enough = count_of(kept) >= self._view.job(row).demand.min
            self._change(row, parts, kept if enough else {})
        for row, on in list(self._shared.items()):
            if any(self._view.cluster.index[part.node] in going for part in on.slices):
                self._free.give(on)
                del self._shared[row]
        for kind, nodes in self._open.items():
            self._open[kind] = [node for node in nodes if node not in going]

    def _on_loan(self, loaned: list[int]) -> tuple[dict[int, set[int]], dict[int, int]]:
        """Jobs that cannot do without each loaned machine, and GPUs in use on it."""
        hosts: dict[int, set[int]] = {node: set() for node in loaned}
        nodes, free = self._view.cluster.nodes, self._free
        used = {node: nodes[node].gpus - free.on(node) for node in loaned}
        for row, parts in self._held.items():
            needed, _ = split(parts, self._view.job(row).demand.min, self._loaned)
            for node in needed:
                if node in hosts:
                    hosts[node].add(row)
        for row, on in self._shared.items():
            for part in on.slices:
                if (node := self._view.cluster.index[part.node]) in hosts:
                    hosts[node].add(row)
        return hosts, used

    # ---- phase 1: base demand

    def set_flexible_aside(self) -> None:
        """Count devices beyond the base of jobs as free; the jobs may get them again."""
        for row, parts in list(self._held.items()):
            base = self._view.job(row).demand.min
            if self._firm[row] or count_of(parts) <= base:
                self._base[row] = parts
                continue
            needed, flexible = split(parts, base, self._loaned)
            self._change(row, parts, needed)
            self._base[row], self._flexible[row] = needed, flexible

    def start_waiting(self) -> None:
        """Base workers for waiting rows in order; a job that does not fit is skipped."""
        view = self._view
        waiting = np.ones(len(view.table), dtype=bool)
        waiting[[*self._held, *self._shared]] = False
        keys = (view.table.submitted,) if self._in_order else (self._seconds,)
        failed: set[tuple[int, float, tuple[str, ...]]] = set()
        for row in map(int, view.ranked(*keys, among=waiting)):
            job = view.job(row)
            alike = (job.demand.min, job.demand.share, job.demand.kinds)
            if alike not in failed and not self._start(row, job):
                failed.add(alike)

    def _start(self, row: int, job: Job) -> bool:
        if job.demand.share < 1.0:
            on = fewest_nodes(job, self._free)
            if on is None or self._closed(on):
                return False
            self._free.take(on)
            self._shared[row] = on
            return True
        for kind in acceptable(job, self._free):
            parts = self._find_base(job.demand.min, kind)
            if parts is not None:
                self._change(row, {}, parts)
                self._base[row] = parts
                return True
        return False

    def _closed(self, on: Allocation) -> bool:
        """Return true if part of an allocation is on a machine that goes back."""
        index, cluster = self._view.cluster.index, self._view.cluster
        nodes = {index[part.node] for part in on.slices}
        return not all(node in self._open[cluster.nodes[node].kind] for node in nodes)

    def _find_base(self, count: int, kind: str) -> Parts | None:
        """On own machines, else on loaned ones, else on both."""
        nodes = self._open[kind]
        own = [node for node in nodes if not self._loaned[node]]
        lent = [node for node in nodes if self._loaned[node]]
        for among in (own, lent, nodes) if lent else (own,):
            if (parts := place_base(count, among, self._free)) is not None:
                return parts
        return None

    # ---- phase 2: flexible demand

    def hand_out(self) -> None:
        """Give what is left of each kind to elastic rows, as its knapsack says."""
        for kind in self._view.cluster.kinds:
            room = sum(self._free.on(node) for node in self._open[kind])
            rows = [row for row in self._base if self._kind(row) == kind and self._elastic(row)]
            if not room or not rows:
                continue
            extra = self._choose(rows, kind, room)
            self._place_extra({row: more for row, more in zip(rows, extra, strict=True) if more})

    def _elastic(self, row: int) -> bool:
        demand = self._view.job(row).demand
        return demand.max > count_of(self._base[row]) and not self._firm[row]

    def _kind(self, row: int) -> str:
        return self._view.cluster.nodes[next(iter(self._base[row]))].kind

    def _choose(self, rows: list[int], kind: str, room: int) -> list[int]:
        jobs = [self._view.job(row) for row in rows]
        limits = [min(job.demand.max, job.demand.min + room) for job in jobs]
        speeds = believed_speeds(self._view, kind, max(limits))
        saved = [
            time_saved(float(self._seconds[row]), speeds[row, job.demand.min : most + 1])
            for row, job, most in zip(rows, jobs, limits, strict=True)
        ]
        held = [count_of(self._flexible.get(row, {})) for row in rows]
        return choose_extra(saved, room, held)

    def _place_extra(self, extra: dict[int, int]) -> None:
        """Devices that jobs had first, so that few move; then loaned machines without base."""
        for row, more in extra.items():
            kept = place_flexible(more, self._flexible.get(row, {}), (), self._free)
            self._change(row, self._held[row], join(self._held[row], kept))
        hosting = {node for parts in self._base.values() for node in parts}
        for row, more in extra.items():
            missing = more + count_of(self._base[row]) - count_of(self._held[row])
            if missing:
                order = self._order(self._kind(row), hosting)
                parts = place_flexible(missing, {}, order, self._free)
                self._change(row, self._held[row], join(self._held[row], parts))

    def _order(self, kind: str, hosting: set[int]) -> list[int]:
        """Loaned machines without base workers, other loaned ones, own ones; the fullest first."""
        free, nodes = self._free, self._open[kind]

        def rank(node: int) -> tuple[bool, bool, int, int]:
            return not self._loaned[node], node in hosting, free.on(node), node

        return sorted((node for node in nodes if free.on(node)), key=rank)

    # ---- the plan

    def _change(self, row: int, before: Parts, after: Parts) -> None:
        """A row holds other devices; in the ledger as well."""
        if before == after:
            return
        if before:
            self._free.give(allocation_of(before, self._free))
        self._held.pop(row, None)
        if after:
            self._free.take(allocation_of(after, self._free))
            self._held[row] = after

    def plan(self) -> Plan:
        """Return the changes from what rows hold now."""
        view, changes = self._view, dict[JobId, Allocation | None]()
        for row, on in enumerate(view.table.allocations):
            if row in self._shared:
                if on is None:
                    changes[view.job(row).id] = self._shared[row]
                continue
            parts = self._held.get(row)
            if parts is None:
                if on is not None:
                    changes[view.job(row).id] = None
            elif on is None or devices_by_node(on, view.cluster) != parts:
                changes[view.job(row).id] = allocation_of(parts, self._free)
        return Plan(changes)


def _seconds_at_base(view: View) -> Floats:
    """T_base: seconds that each row would still take with its base workers alone.

    By its speed there and on what it asks for, on the kind that it holds or takes first.
    """
    left = view.remaining()
    seconds = np.where(np.isfinite(left), left, UNKNOWN_S)
    by_kind: dict[str, list[int]] = {}
    for row, (job, on) in enumerate(zip(view.table.jobs, view.table.allocations, strict=True)):
        if job.demand.min < job.demand.gpus:
            kinds = acceptable(job, view.free) if on is None else (view.cluster.kind_of(on),)
            by_kind.setdefault(next(iter(kinds), view.cluster.kinds[0]), []).append(row)
    for kind, rows in by_kind.items():
        demands = [view.job(row).demand for row in rows]
        speeds = believed_speeds(view, kind, max(demand.gpus for demand in demands))
        for row, demand in zip(rows, demands, strict=True):
            asked, base = speeds[row, demand.gpus], speeds[row, demand.min]
            known = asked > 0.0 and base > 0.0
            seconds[row] *= asked / base if known else demand.gpus / demand.min
    return seconds
