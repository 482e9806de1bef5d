"""Gandiva: oversubscribe, take turns, pack by trial, migrate, grow and shrink.

Paper       Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI
            2018.
Objective   early feedback for every job and busy GPUs; neither fairness nor completion time.
Needs       nothing beforehand; the measured pace of jobs that run side by side. An unmodified
            job takes turns, and is packed by trial once its use of the GPU was measured.
Controls    which jobs run, where, which two share devices; with `elastic` how many GPUs.
Cost        O(jobs + nodes) per decision, one decision per quantum while jobs take turns.
Deviations  turns are real suspensions: a job leaves its devices at the end of its quantum and comes
            back in its next turn, at `hand_over` seconds each time, so suspended jobs hold no
            device memory and gangs of different size rotate as in the paper; elsewhere than on its
            node a start costs what the simulator charges for a restart (a migration). Every node
            has quanta of its own, and a new one begins when all jobs whose turn it is have ended.
            The oversubscription limit is not in the paper: `limit` times a node's GPUs. Packing is
            tried inside a node, two jobs of equal size at a time, for one quantum; saturating jobs
            are not tried. Whole-node emptying happens when a job leaves while no node is empty, all
            of a node or nothing. A gang larger than a node waits for empty nodes and is never
            suspended. A job that asks for part of a device gets a whole one. Jobs do not move
            between kinds of GPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, JobId, NodeId, Sharing, Slice
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.share.memory_order import order_memory
from weft_papers.gandiva.occupancy import (
    GandivaMemory,
    HomeOccupancy,
    Pair,
    RoundRobinTurn,
    drop_left,
    fill_slice,
    next_turn,
)
from weft_papers.gandiva.place import place, with_room

EPS = 1e-9
WHERE = tax.classify(
    tax.Objective.FEEDBACK | tax.Objective.UTILIZATION,
    tax.NeededKnowledge.NOTHING,
    tax.Preemption.SUSPENDS | tax.Preemption.MOVES,
    tax.DeviceSharing.SIDE_BY_SIDE | tax.DeviceSharing.TURNS,
)


@frozen
class Gandiva:
    """No job waits while a node of its size has turns to give.

    `limit` is how many times its GPUs a node may promise; `quantum` the seconds of a turn;
    `hand_over` what a switch between jobs costs; `threshold` the free part of a node from which on
    its jobs are moved away.
    """

    limit: float = 2.0
    quantum: float = 60.0
    hand_over: float = 0.5
    pack: bool = True
    migrate: bool = True
    elastic: bool = False
    threshold: float = 0.75

    def __post_init__(self) -> None:
        if self.limit < 1.0 or self.quantum <= 0.0 or self.hand_over < 0.0:
            raise InvalidConfig(
                f"gandiva: limit {self.limit:g}, quantum {self.quantum:g} and hand_over "
                f"{self.hand_over:g} make no turns",
                hint="limit at least 1, quantum above 0, hand_over at least 0",
            )

    @property
    def about(self) -> About:
        """Sizes are set only where jobs may grow."""
        controls = Controls.SHARE | (Controls.COUNT if self.elastic else Controls.NOTHING)
        return About(
            "gandiva",
            "Xiao et al. 2018",
            controls=controls,
            resume_s=self.hand_over,
            idles="jobs take turns on their node, and a job that finds no node keeps others "
            "waiting",
            ties=Ties.NONE,
            taxonomy=WHERE,
        )

    def decide(self, view: View) -> Plan:
        """Find homes for newcomers, improve those of others, then see whose turn it is."""
        kept = recall(view, GandivaMemory)
        book = HomeOccupancy(view, kept)
        over = {node for node, end in kept.until.items() if view.now >= end - EPS}
        end_trials(book, over)
        self._admit(book)
        if self.migrate and book.departed:
            move_suspended(book)
            defragment(book, self.threshold)
        running, begun = self._turns(book, {n for n in kept.until if n not in over})
        if self.elastic and not book.waiting() and not book.turns:
            grow(book)
        changes = _changes(book, running)
        until = self._until(book, kept, changes, begun)
        used = dict.fromkeys((*kept.used, *(n for j in running for n in book.home[j])))
        memory = book.to_memory(until, (n for n in used if n in book.nodes))
        wake_at, order = min(until.values(), default=None), order_memory(view, changes)
        return Plan(changes, wake_at=wake_at, memory=memory, memory_order=order)

    def _admit(self, book: HomeOccupancy) -> None:
        for job in book.waiting():
            home = place(book, job, self.limit)
            if home is None:
                return  # first come, first served
            book.assign_home(job.id, home)

    def _turns(
        self, book: HomeOccupancy, amid: Collection[NodeId]
    ) -> tuple[list[JobId], set[NodeId]]:
        """Units that run now, node by node, and where a quantum begins; `amid` are inside one."""
        running: dict[JobId, None] = {}
        begun: set[NodeId] = set()
        for node in book.nodes:
            over = node not in amid
            if book.free(node) < 0 and over and self.pack:
                pair = pair_to_try(book, node)
                if pair is not None:
                    book.pair(*pair)
                    book.trials.append(pair)
            units = book.jobs_or_pairs(node)
            sizes = {unit: book.size(unit, node) for unit in units}
            if book.free(node) >= 0:
                book.turns.pop(node, None)
                running.update(dict.fromkeys(units))
                begun |= {node} if over else set()
                continue
            emptied = not drop_left(book.turns.get(node, RoundRobinTurn()), units).inside
            begun |= {node} if over or emptied else set()
            turn = book.turns[node] = self._turn(book, node, sizes, over=over)
            running.update(dict.fromkeys(turn.inside))
        return list(running), begun

    def _turn(
        self, book: HomeOccupancy, node: NodeId, sizes: dict[JobId, int], *, over: bool
    ) -> RoundRobinTurn:
        gpus = book.nodes[node].gpus
        before = drop_left(book.turns.get(node, RoundRobinTurn()), list(sizes))
        new = {job for pair in book.trials for job in pair}
        order = sorted(before.order, key=lambda unit: unit not in new)
        if not before.inside:
            # Running jobs go first: none is suspended in the middle of a quantum.
            order = order if over else sorted(order, key=lambda unit: unit not in book.held)
        elif not over:
            return fill_slice(before, sizes, gpus)
        pinned = {unit for unit in order if book.pinned(unit)}
        return next_turn(order, sizes, gpus, pinned)

    def _until(
        self,
        book: HomeOccupancy,
        kept: GandivaMemory,
        changes: dict[JobId, Allocation | None],
        begun: Collection[NodeId],
    ) -> dict[NodeId, float]:
        """Return when the next turn begins on each node where jobs take turns or are on trial."""
        starts = [on for job, on in changes.items() if on is not None and job not in book.held]
        handed = {part.node for on in starts for part in on.slices if part.node in kept.used}
        tried = {node for pair in book.trials for node in book.home[pair[0]]}
        return {
            node: kept.until[node]
            if node not in begun
            else book.view.now + self.quantum + (self.hand_over if node in handed else 0.0)
            for node in book.nodes
            if node in book.turns or node in tried
        }


def _changes(book: HomeOccupancy, running: Iterable[JobId]) -> dict[JobId, Allocation | None]:
    """From units and homes to devices: jobs that stay keep them, newcomers take what is left."""
    free, held = book.view.free, book.held
    wanted: dict[JobId, Allocation] = {}
    fresh: list[JobId] = []
    kept: set[tuple[Slice, ...]] = set()
    for unit in running:
        at = _devices(book, unit)
        if at is None or at in kept:  # of two that part one must go
            fresh.append(unit)
        else:
            kept.add(at)
            wanted.update(_terms(book, unit, at))
    for job, on in held.items():
        if wanted.get(job) != on:
            free.give(on)
    for job, on in wanted.items():
        if held.get(job) != on:
            free.take(on)
    for unit in fresh:
        index = book.view.cluster.index
        at = tuple(free.slice(index[node], gpus) for node, gpus in book.home[unit].items())
        for job, on in _terms(book, unit, at).items():
            free.take(on)
            wanted[job] = on
    changes: dict[JobId, Allocation | None] = {job: None for job in held if job not in wanted}
    changes.update({job: on for job, on in wanted.items() if held.get(job) != on})
    return changes


def _devices(book: HomeOccupancy, unit: JobId) -> tuple[Slice, ...] | None:
    """Devices that a member of a unit holds already, if they are what the unit should have."""
    for job in book.members(unit):
        on = book.held.get(job)
        if on is not None and {p.node: len(p.gpus) for p in on.slices} == book.home[unit]:
            return on.slices
    return None


def _terms(book: HomeOccupancy, unit: JobId, at: tuple[Slice, ...]) -> dict[JobId, Allocation]:
    """Return the allocation of every member of a unit: all of its devices, or half of each."""
    members = book.members(unit)
    share = 1.0 / len(members)
    index, free = book.view.cluster.index, book.view.free
    slices = tuple(
        free.slice_of(index[part.node], sum(1 << gpu for gpu in part.gpus), share) for part in at
    )
    if len(members) == 1:
        return {unit: Allocation(slices)}
    profile = book.view.sharing().profile
    return {
        job: Allocation(
            slices, Sharing(share=share, gpu_mem_gb=profile(book.jobs[job]).mem_gb or None)
        )
        for job in members
    }


# ---- Migration: jobs in turns to vacated GPUs, whole nodes emptied; growing into idle GPUs


def move_suspended(book: HomeOccupancy) -> None:
    """Move suspended jobs of oversubscribed nodes to where there is room for them."""
    if not any(book.free(node) > 0 for node in book.nodes):
        return
    for node in book.nodes:
        for job in reversed(book.jobs_or_pairs(node)):
            if book.free(node) >= 0:
                break
            if job in book.held or not _single(book, job):
                continue
            job_nodes = [n for n in book.nodes_for(book.jobs[job]) if n.id != node]
            target = with_room(book, job_nodes, book.size(job, node))
            if target is not None:
                book.move(job, target.id)


def defragment(book: HomeOccupancy, threshold: float) -> None:
    """Empty nodes that are mostly free, into the gaps of others; all of a node or nothing."""
    while (node := _emptiest(book, threshold)) is not None:
        moves = _evacuation(book, node)
        if moves is None:
            return
        for job, to in moves.items():
            book.move(job, to)


def grow(book: HomeOccupancy) -> None:
    """Double elastic jobs into GPUs of their node that no other job needs."""
    for node in book.nodes:
        for job in book.jobs_or_pairs(node):
            if not _single(book, job) or not book.jobs[job].stoppable:
                continue
            size, most = book.size(job, node), book.jobs[job].demand.max
            if size <= book.free(node) and 2 * size <= most:
                book.resize(job, node, 2 * size)


def _single(book: HomeOccupancy, job: JobId) -> bool:
    return job not in book.mate and len(book.home[job]) == 1


def _emptiest(book: HomeOccupancy, threshold: float) -> NodeId | None:
    """The node in use with the most free GPUs, if it is mostly free and none is empty."""
    best: Node | None = None
    for node in book.nodes.values():
        if not book.residents(node.id):
            return None  # there is a whole node already
        mostly = book.free(node.id) >= threshold * node.gpus
        if mostly and (best is None or book.free(node.id) > book.free(best.id)):
            best = node
    return None if best is None else best.id


def _evacuation(book: HomeOccupancy, node: NodeId) -> dict[JobId, NodeId] | None:
    """Find another node for each job, largest first, none oversubscribed; None if impossible."""
    units = book.jobs_or_pairs(node)
    if any(not _single(book, job) or book.pinned(job) for job in units):
        return None
    room = {other: book.free(other) for other in book.nodes if other != node}
    moves: dict[JobId, NodeId] = {}
    for job in sorted(units, key=lambda unit: -book.size(unit, node)):
        size = book.size(job, node)
        there = [n.id for n in book.nodes_for(book.jobs[job]) if room.get(n.id, 0) >= size]
        if not there:
            return None
        moves[job] = min(there, key=lambda n: room[n])
        room[moves[job]] -= size
    return moves


# ---- Packing by trial: put two jobs on the same devices, measure, keep or undo


BUSY = 0.99  # a job that keeps its devices as busy as this has nothing to give away


def worth_it(speeds: Sequence[float]) -> bool:
    """Return true if jobs together do more than in turns; speeds are parts of each one's alone."""
    return sum(speeds) > 1.0 + 1e-9


def end_trials(book: HomeOccupancy, over: Collection[NodeId]) -> None:
    """End trials that are over: keep each pair that was worth it, part the others for good."""
    ended = [pair for pair in book.trials if set(book.home.get(pair[0], {})) <= set(over)]
    for job_id, other in ended:
        if book.mate.get(job_id) != other:
            continue
        paces = [book.view.sharing().pace(book.jobs[job]) for job in (job_id, other)]
        measured = [pace for pace in paces if pace is not None]
        if len(measured) < len(paces) or not worth_it(measured):
            book.separate(job_id, other)
    book.trials = [pair for pair in book.trials if pair not in ended]


def pair_to_try(book: HomeOccupancy, node: NodeId) -> Pair | None:
    """The two least busy jobs of a node that may run together and were not tried yet."""
    sharing = book.view.sharing()
    alone = [job for job in book.residents(node) if _movable(book, job)]
    use = {job: sharing.profile(book.jobs[job]).gpu_use for job in alone}
    alone = sorted((job for job in alone if use[job] < BUSY), key=lambda job: use[job])
    failed = {frozenset(pair) for pair in book.refused}
    most = book.nodes[node].device_gb
    for job_id, other in combinations(alone, 2):
        if book.home[job_id] != book.home[other] or frozenset((job_id, other)) in failed:
            continue
        if sum(sharing.profile(book.jobs[job]).mem_gb for job in (job_id, other)) <= most:
            return job_id, other
    return None


def _movable(book: HomeOccupancy, job: JobId) -> bool:
    asked = book.jobs[job]
    free = job not in book.mate and not book.pinned(job)
    return free and asked.shareable and asked.demand.share == 1.0
