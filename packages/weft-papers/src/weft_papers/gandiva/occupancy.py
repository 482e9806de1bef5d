"""Jobs by node: Gandiva's memory between decisions, and the working copy of one decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import ceil

from weft.core.model.cluster import Node
from weft.core.model.job import Job, JobId, NodeId
from weft.core.plan.view import View
from weft.frozen import frozen

Parts = dict[NodeId, int]
Pair = tuple[JobId, JobId]


@frozen
class RoundRobinTurn:
    """Round-robin order of a node's units by their first member, and those whose turn it is."""

    order: tuple[JobId, ...] = ()
    inside: tuple[JobId, ...] = ()


@frozen
class GandivaMemory:
    """Homes with GPUs a node, affinities, turns, pairs kept or on trial, pairs that failed.

    `until` is when the present quantum and trials of a node end; `used` are nodes that have run a
    job.
    """

    home: dict[JobId, Parts] = field(default_factory=dict)
    affinity: dict[NodeId, int] = field(default_factory=dict)
    turns: dict[NodeId, RoundRobinTurn] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()
    trials: tuple[Pair, ...] = ()
    refused: tuple[Pair, ...] = ()
    until: dict[NodeId, float] = field(default_factory=dict)
    used: tuple[NodeId, ...] = ()


class HomeOccupancy:
    """Homes as they are being rewritten; a packed pair counts once, as one unit."""

    def __init__(self, view: View, kept: GandivaMemory) -> None:
        self.view = view
        self.nodes: dict[NodeId, Node] = {node.id: node for node in view.cluster.nodes}
        self.jobs: dict[JobId, Job] = {job.id: job for job in view.table.jobs}
        self.home: dict[JobId, Parts] = {}
        self._on: dict[NodeId, list[JobId]] = {node: [] for node in self.nodes}
        self.affinity: dict[NodeId, int] = {}
        self.turns = {node: t for node, t in kept.turns.items() if node in self.nodes}
        self.trials = [pair for pair in kept.trials if self._both(pair)]
        self.refused = [pair for pair in kept.refused if self._both(pair)]
        self.mate: dict[JobId, JobId] = {}
        self._loads: dict[NodeId, int] = {}
        held = view.held()
        for job in kept.home:
            if job in self.jobs and self._stands(kept.home[job]):
                self.assign_home(job, kept.home[job])
        for job, on in held.items():
            if job not in self.home:  # started by another policy
                self.assign_home(job, {part.node: len(part.gpus) for part in on.slices})
        for job_id, other in kept.pairs:
            if self.home.get(job_id, {}) == self.home.get(other):
                self.pair(job_id, other)
        for node, gpus in kept.affinity.items():
            if self._on.get(node):
                self.affinity[node] = gpus
        self.held = held
        self.departed = any(job not in self.home for job in kept.home)

    # ---- reading

    def residents(self, node: NodeId) -> list[JobId]:
        """Jobs at home on a node, in order of arrival."""
        return self._on[node]

    def jobs_or_pairs(self, node: NodeId) -> list[JobId]:
        """Return the jobs of a node, each packed pair as its first member."""
        residents = self._on[node]
        place = {job: i for i, job in enumerate(residents)}
        return [job for job in residents if not place.get(self.mate.get(job, job), -1) < place[job]]

    def size(self, unit: JobId, node: NodeId) -> int:
        """GPUs of a unit on a node."""
        return self.home[unit][node]

    def load(self, node: NodeId) -> int:
        """GPUs that all units of a node would need at once."""
        if node not in self._loads:
            self._loads[node] = sum(self.size(unit, node) for unit in self.jobs_or_pairs(node))
        return self._loads[node]

    def free(self, node: NodeId) -> int:
        """GPUs that no job needs; negative where jobs take turns."""
        return self.nodes[node].gpus - self.load(node)

    def load_in_nodes(self, node: NodeId) -> int:
        """Load in whole nodes: above 1 is oversubscribed."""
        return ceil(self.load(node) / self.nodes[node].gpus)

    def members(self, unit: JobId) -> tuple[JobId, ...]:
        return (unit, self.mate[unit]) if unit in self.mate else (unit,)

    def pinned(self, job: JobId) -> bool:
        """Return true if a job can neither be suspended nor moved."""
        running = job in self.held and not self.jobs[job].stoppable
        return running or len(self.home[job]) > 1

    def waiting(self) -> list[Job]:
        """Jobs without a home, in order of submission."""
        return [job for job in self.view.table.jobs if job.id not in self.home]

    def nodes_for(self, job: Job) -> list[Node]:
        """Nodes of a kind that a job accepts, in the cluster's order."""
        kinds = job.demand.kinds
        return [n for n in self.nodes.values() if not kinds or n.kind in kinds]

    # ---- writing

    def assign_home(self, job: JobId, parts: Parts) -> None:
        """Note on which GPUs of which nodes a job has its home."""
        self.home[job] = dict(parts)
        for node in parts:
            if not self._on[node]:
                self.affinity[node] = self.jobs[job].demand.gpus
            self._on[node].append(job)
            self._loads.pop(node, None)

    def resize(self, job: JobId, node: NodeId, gpus: int) -> None:
        """Other GPUs for a job where it is."""
        self.home[job][node] = gpus
        self._loads.pop(node, None)

    def move(self, job: JobId, to: NodeId) -> None:
        """Another home, of the same size."""
        gpus = sum(self.home[job].values())
        for node in self.home.pop(job):
            self._on[node].remove(job)
            self._loads.pop(node, None)
            if not self._on[node]:
                self.affinity.pop(node, None)
        self.assign_home(job, {to: gpus})

    def pair(self, job_id: JobId, other: JobId) -> None:
        """Run two jobs on the same devices."""
        self.mate[job_id], self.mate[other] = other, job_id
        self._loads.clear()

    def separate(self, job_id: JobId, other: JobId) -> None:
        """Run them apart again, and not together another time."""
        self.mate.pop(job_id, None)
        self.mate.pop(other, None)
        self.refused.append((job_id, other))
        self._loads.clear()

    def to_memory(self, until: dict[NodeId, float], used: Iterable[NodeId]) -> GandivaMemory:
        """Homes and turns as the memory of the policy."""
        return GandivaMemory(
            self.home,
            self.affinity,
            self.turns,
            tuple(self._pairs()),
            tuple(self.trials),
            tuple(self.refused),
            until,
            tuple(used),
        )

    # ---- inside

    def _pairs(self) -> Iterator[Pair]:
        place = {job: i for i, job in enumerate(self.home)}
        for job_id, other in self.mate.items():
            if place[job_id] < place[other]:
                yield job_id, other

    def _both(self, pair: Pair) -> bool:
        return pair[0] in self.jobs and pair[1] in self.jobs

    def _stands(self, parts: Parts) -> bool:
        return all(self.nodes.get(node) is not None for node in parts) and all(
            gpus <= self.nodes[node].gpus for node, gpus in parts.items()
        )


# Round-robin gang slicing inside a node.


def next_turn(
    order: Sequence[JobId], sizes: Mapping[JobId, int], gpus: int, pinned: Collection[JobId] = ()
) -> RoundRobinTurn:
    """The next set of gangs that fits, from the head of the order; they go to its end.

    The head always runs, so each gang runs at least once in as many quanta as there are gangs
    that do not fit together.
    """
    inside: list[JobId] = []
    for unit in sorted(order, key=lambda u: u not in pinned):
        if sizes[unit] <= gpus:
            inside.append(unit)
            gpus -= sizes[unit]
    rest = [unit for unit in order if unit not in inside]
    return RoundRobinTurn((*rest, *inside), tuple(inside))


def fill_slice(turn: RoundRobinTurn, sizes: Mapping[JobId, int], gpus: int) -> RoundRobinTurn:
    """Return the turn with gaps of ended jobs filled by those that come next."""
    inside = [unit for unit in turn.inside if unit in sizes]
    gpus -= sum(sizes[unit] for unit in inside)
    for unit in turn.order:
        if unit not in inside and sizes[unit] <= gpus:
            inside.append(unit)
            gpus -= sizes[unit]
    return RoundRobinTurn(turn.order, tuple(inside))


def drop_left(turn: RoundRobinTurn, units: Sequence[JobId]) -> RoundRobinTurn:
    """A turn without jobs that left, newcomers at the end of its order."""
    order = [unit for unit in turn.order if unit in units]
    order += [unit for unit in units if unit not in order]
    return RoundRobinTurn(tuple(order), tuple(unit for unit in turn.inside if unit in units))
