"""Topology-aware scheduling: GPUs by a utility of communication, interference and fragments.

Paper       Amaral, Polo, Carrera, Seelam, Steinder, "Topology-Aware GPU Scheduling for
            Learning Workloads in Cloud Environments", SC 2017.
Objective   speed of jobs that communicate, without disturbing those beside them, and few
            fragments; with `place=postpone` also a least utility for every job.
Needs       how GPUs are connected inside a node; how jobs on a socket slow each other, where
            measured; a job's least utility as the hint `min_utility` (0 to 1).
Controls    which jobs run, on which machine and GPUs. `place` is topology, postpone, or one of the
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

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np

from weft.core.knowledge.knowledge import BusSharing
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.topology import MOST_GPUS, NodeTopology
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.formulas.network.link_scores import list_sets
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft_papers.topology.utility import (
    LEAST,
    Emphasis,
    Form,
    TopologyUtility,
    list_touched,
    price_communication,
    price_fragments,
)

Alike = tuple[Demand, str]
Place = Literal["topology", "postpone", "fcfs", "best-fit"]


@frozen
class Topology:
    """Place waiting jobs in order of arrival where the cluster gains most; stop none.

    `emphasis` weighs communication (locality), interference and fragmentation (spread); `form`
    combines them as the authors' code does (power) or as in the paper (sum).
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
            tax.NeededKnowledge.TRAFFIC,
            tax.Preemption.NEVER,
            tax.TopologyKnowledge.LINKS,
        ),
    )

    def decide(self, view: View) -> Plan:
        """Try every waiting job in order of arrival: those skipped come first again."""
        waiting = view.waiting().nonzero()[0]
        if not waiting.size or not view.free.room():
            return Plan()
        mapper = Mapper(TopologyUtility(self.emphasis, self.form), view.bus, self.shipped)
        draft = _Draft(view, self.place, mapper)
        for row in waiting.tolist():
            draft.start(view.job(row))
        return Plan(draft.changes)


class _Draft:
    """A plan in the making: which job would be where."""

    def __init__(self, view: View, place: Place, mapper: Mapper) -> None:
        self.changes: dict[JobId, Allocation | None] = {}
        self._view, self._place, self._mapper = view, place, mapper
        self._full: set[Alike] = set()
        self._judged: dict[Hashable, GpuChoice | None] = {}
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
        """Return the least utility that the job asks for."""
        wanted = min(job.hints.get("min_utility", 0.0), 1.0)
        if wanted <= 0.0:
            return 0.0
        topology = self._topology(node)
        empty = self._judge(job, TopologyMachine(topology, (1 << topology.gpus) - 1))
        return 0.0 if empty is None else wanted * empty.job

    def _judge(self, job: Job, machine: TopologyMachine) -> GpuChoice | None:
        """The best GPUs of a machine; those of another one alike are the same."""
        beside = tuple(
            (neighbour.model, neighbour.demand.gpus, at) for neighbour, at in machine.neighbours
        )
        key = (job.model, job.demand.gpus, machine.topology, machine.free, beside)
        if key not in self._judged:
            self._judged[key] = self._mapper.best_set(job, machine)
        return self._judged[key]

    def _machine(self, node: int) -> TopologyMachine:
        beside = tuple(self._on.get(node, ()))
        return TopologyMachine(self._topology(node), self._view.free.idle_mask(node), beside)

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


# ---- A machine and its GPUs for a job, by dual recursive bipartitioning
#
# Machines are dealt into two halves, and the job goes to the half where the best machine gains
# the cluster more, until one machine is left; there all sets of free GPUs are compared. The
# authors go on halving the machine and send each worker to the half that owns its GPU: which
# workers go where is not ours to say, so the set is the answer.


EQUAL = TopologyUtility()


@frozen
class TopologyMachine:
    """One machine as a job finds it; `neighbours` are jobs and the sockets they are on, as bits."""

    topology: NodeTopology
    free: int
    neighbours: tuple[tuple[Job, int], ...] = ()


@frozen
class GpuChoice:
    """GPUs of a machine, and what they are worth to the cluster and to the job."""

    mask: int
    system: float
    job: float


@frozen
class Mapper:
    """A judge of GPU sets. `bus` is what jobs on a socket do to each other, None if unknown.

    `shipped` keeps two slips of the authors' code: an interference that is larger where jobs
    disturb each other less, and a fragmentation of the GPUs that are not taken.
    """

    utility: TopologyUtility = EQUAL
    bus: BusSharing | None = None
    shipped: bool = False

    def best_set(self, job: Job, machine: TopologyMachine) -> GpuChoice | None:
        """The GPUs of one machine that gain the cluster most; None if too few are free."""
        topology, count = machine.topology, job.demand.gpus
        if machine.free.bit_count() < count or count > topology.gpus:
            return None
        every = list_sets(topology.gpus, count)
        fits = (every & ~machine.free) == 0
        masks = every[fits]
        communication = price_communication(topology, count)[fits]
        touched = list_touched(topology, masks)
        suffered, disturbed = np.full(len(masks), LEAST), np.full(len(masks), LEAST)
        if machine.neighbours and self.bus is not None:
            for sockets in set(touched.tolist()):
                single, both = self._price_interference(job, machine, sockets)
                suffered[touched == sockets], disturbed[touched == sockets] = single, both
        broken = price_fragments(topology, machine.free, masks, shipped=self.shipped)
        system = self.utility.of_system(communication, disturbed, broken)
        best = int(np.argmax(system))
        own = self.utility.of_job(communication[best : best + 1], suffered[best : best + 1])
        return GpuChoice(int(masks[best]), float(system[best]), float(own[0]))

    def _price_interference(
        self, job: Job, machine: TopologyMachine, sockets: int
    ) -> tuple[float, float]:
        """Return what a job suffers on these sockets, and the mean of that and what it causes."""
        assert self.bus is not None
        beside = [other for other, where in machine.neighbours if where & sockets]
        mine = [self.bus.speed(job, other) for other in beside]
        theirs = [self.bus.speed(other, job) for other in beside]
        if self.shipped:
            of_all = len(machine.neighbours)
            suffered = sum(speed for speed in mine if speed < 1.0) / max(of_all, 1)
            caused = [speed for speed in theirs if speed < 1.0]
        else:
            suffered = sum(1.0 - speed for speed in mine) / max(len(mine), 1)
            caused = [1.0 - speed for speed in theirs if speed < 1.0]
        suffered = max(suffered, LEAST)
        if not caused:
            return suffered, suffered
        return suffered, (suffered + max(sum(caused) / len(caused), LEAST)) / 2.0


def bipartition(
    machines: Sequence[int], free: Callable[[int], int], best: Callable[[int], GpuChoice | None]
) -> tuple[int, GpuChoice] | None:
    """The machine of a job, by halves; `free` counts GPUs of a machine, and `best` judges it."""
    if not machines:
        return None
    if len(machines) == 1:
        chosen = best(machines[0])
        return None if chosen is None else (machines[0], chosen)
    halves: tuple[list[int], list[int]] = ([], [])
    room = [0, 0]
    for machine in machines:
        side = 0 if (room[0], len(halves[0])) <= (room[1], len(halves[1])) else 1
        halves[side].append(machine)
        room[side] += free(machine)
    first, second = (_most(half, best) for half in halves)
    if first == second == 0.0:
        return None
    return bipartition(halves[0 if first > second else 1], free, best)


def _most(machines: Sequence[int], best: Callable[[int], GpuChoice | None]) -> float:
    sets = map(best, machines)
    return max((chosen.system for chosen in sets if chosen is not None), default=0.0)
