"""Topology-aware scheduling: GPUs by a utility of communication, interference and fragments.

Paper       Amaral, Polo, Carrera, Seelam, Steinder, "Topology-Aware GPU Scheduling for
            Learning Workloads in Cloud Environments", SC 2017.
Objective   speed of jobs that communicate, without disturbing those beside them, and few
            fragments; with `place=postpone` also a least utility for every job.
Needs       how nodes are joined inside; how jobs on a socket slow each other, where measured;
            a job's least utility as the hint `min_utility` (0 to 1).
Controls    who runs, on which machine and GPUs. `place` is topology, postpone, or one of the
            baselines: fcfs (first GPUs of the first machine), best-fit (of the fullest).
Cost        for each waiting job and machine with room O(C(n, k)) sets of k of n GPUs, as columns;
            machines whose free GPUs and neighbours are alike are judged once.
Deviations  interference is the intended slowdown, not its inverse as in the authors' code, and
            fragments are of the GPUs that stay free: `shipped=true` has both as they are there.
            For sets of more than three GPUs, of which the code knows no worst case, it is the
            larger of the greatest distance times their number and the spread of their sums. A
            least utility is counted against the best that an empty machine gives, so that every
            job can start somewhere. Jobs too large for a machine take the fewest.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Literal

from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.topology import MOST_GPUS, NodeTopology
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.policies.topology.mapping import Found, Machine, Mapper, bipartition
from weft.policies.topology.utility import Emphasis, Form, Utility

Alike = tuple[Demand, str]
Place = Literal["topology", "postpone", "fcfs", "best-fit"]


@frozen
class Topology:
    """Place waiting jobs in order of arrival where they gain the cluster most; stop nobody.

    `emphasis` weighs communication (locality), interference and fragmentation (spread); `form`
    joins them as the code does (power) or as the paper has it (sum).
    """

    place: Place = "topology"
    emphasis: Emphasis = "equal"
    form: Form = "power"
    shipped: bool = False

    about = About(
        "topology",
        "Amaral et al. 2017",
        starves="overtaking",
        idles="a job waits for a place that is good enough for it",
        ties=Ties.NONE,
        taxonomy=tax.classify(
            tax.Objective.COMPLETION_TIME,
            tax.Knowledge.TRAFFIC,
            tax.Preemption.NEVER,
            tax.Topology.LINKS,
        ),
    )

    def decide(self, view: View) -> Plan:
        """Try every waiting job in order of arrival: those passed over come first again."""
        waiting = view.waiting().nonzero()[0]
        if not waiting.size or not view.free.room():
            return Plan()
        mapper = Mapper(Utility(self.emphasis, self.form), view.bus, self.shipped)
        draft = _Draft(view, self.place, mapper)
        for row in waiting.tolist():
            draft.start(view.job(row))
        return Plan(draft.changes)


class _Draft:
    """A plan in the making: who would be where."""

    def __init__(self, view: View, place: Place, mapper: Mapper) -> None:
        self.changes: dict[JobId, Allocation | None] = {}
        self._view, self._place, self._mapper = view, place, mapper
        self._full: set[Alike] = set()
        self._judged: dict[Hashable, Found | None] = {}
        self._on: dict[int, list[tuple[Job, int]]] = {}
        for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
            if on is not None:
                self._settle(job, on)

    def start(self, job: Job) -> None:
        """Place a job, if there is a place that is good enough."""
        alike = (job.demand, job.model)
        need = job.demand.gpus * job.demand.share
        if alike in self._full or need > self._view.free.room() + 1e-9:
            return
        on = self._allocate(job)
        if on is not None:
            self._view.free.take(on)
            self.changes[job.id] = on
            self._settle(job, on)

    def _allocate(self, job: Job) -> Allocation | None:
        free, demand, room = self._view.free, job.demand, False
        for kind in acceptable(job, free):
            largest = free.cluster.node_size(kind)
            several = demand.nodes > 1 or demand.gpus > largest
            if demand.share < 1.0 or several or largest > MOST_GPUS:
                return fewest_nodes(job, free)
            sizes = range(demand.gpus, largest + 1)
            nodes = [node for size in sizes for node in free.nodes_with(kind, size)]
            room = room or bool(nodes)
            if nodes and (chosen := self._choose(job, nodes)) is not None:
                return Allocation((chosen,))
        if not room:
            self._full.add((demand, job.model))
        return None

    def _choose(self, job: Job, nodes: list[int]) -> Slice | None:
        """GPUs of one of the nodes, which are the fullest first; None if the job should wait."""
        free = self._view.free
        if self._place == "fcfs":
            return free.slice(min(nodes), job.demand.gpus)
        if self._place == "best-fit":
            return free.slice(nodes[0], job.demand.gpus)
        mapped = bipartition(
            sorted(nodes), free.on, lambda node: self._judge(job, self._machine(node))
        )
        if mapped is None:
            return None
        node, chosen = mapped
        if self._place == "postpone" and chosen.job < self._least(job, node):
            return None
        return free.slice_of(node, chosen.mask)

    def _least(self, job: Job, node: int) -> float:
        """What the job's own utility must be."""
        wanted = min(job.hints.get("min_utility", 0.0), 1.0)
        if wanted <= 0.0:
            return 0.0
        topology = self._topology(node)
        empty = self._judge(job, Machine(topology, (1 << topology.gpus) - 1))
        return 0.0 if empty is None else wanted * empty.job

    def _judge(self, job: Job, machine: Machine) -> Found | None:
        """The best GPUs of a machine; those of another one alike are the same."""
        beside = tuple(
            (neighbour.model, neighbour.demand.gpus, at) for neighbour, at in machine.neighbours
        )
        key = (job.model, job.demand.gpus, machine.topology, machine.free, beside)
        if key not in self._judged:
            self._judged[key] = self._mapper.best_set(job, machine)
        return self._judged[key]

    def _machine(self, node: int) -> Machine:
        beside = tuple(self._on.get(node, ()))
        return Machine(self._topology(node), self._view.free.idle_mask(node), beside)

    def _topology(self, node: int) -> NodeTopology:
        held = self._view.cluster.nodes[node]
        return held.topology or _plain(held.gpus)

    def _settle(self, job: Job, on: Allocation) -> None:
        """Take note of the sockets that a job is on, where interference is known."""
        if self._mapper.bus is None:
            return
        for part in on.slices:
            node = self._view.cluster.index[part.node]
            socket_of = self._topology(node).socket_of
            sockets = 0
            for gpu in part.gpus:
                sockets |= 1 << socket_of[gpu]
            self._on.setdefault(node, []).append((job, sockets))


@lru_cache(maxsize=16)
def _plain(gpus: int) -> NodeTopology:
    """A machine that says nothing of links: one socket, all pairs alike."""
    return NodeTopology("plain", gpus)
