"""AntMan as the baseline inside Muri's simulator has it (Zhao et al., SIGCOMM 2022).

Guaranteed jobs first, then opportunistic ones, each in order of submission; no job is ever
stopped. A guaranteed gang of at most a node takes the first node with room for all of it, or
keeps what is free on the emptiest one and waits there for the rest; a larger one collects
whole nodes. Devices that are kept stay idle for guaranteed jobs, while opportunistic ones may
use them. An opportunistic gang takes the least loaded devices of any nodes, all at once, at
most one such job to a device.

Loads are booked as sums of floats because their simulator does: between idle devices its choice
falls by what rounding left there, and without that the average completion time of their trace
3 comes out 2 % lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.core.model.job import Allocation, Discipline, Job, JobId, NodeId, Sharing, Slice, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft_papers.antman.fair import Device, opportunistic
from weft_papers.antman.policy import Antman

FIRM = Sharing(discipline=Discipline.PACED)
LOOSE = Sharing(tier=Tier.OPPORTUNISTIC, discipline=Discipline.PACED)
FIRM_LOAD, LOOSE_LOAD = 0.1, 0.9
LAST = 0.01  # of the load of a guaranteed job, booked once its gang is whole
Kept = dict[int, list[int]]


@dataclass(frozen=True)
class MuriAntman(Antman):
    """AntMan as Muri's simulator has it: parts of gangs are kept, and there are no shares."""

    def decide(self, view: View) -> Plan:
        """Start what fits; jobs of priority -1 and below are opportunistic."""
        return as_in_muri(view, self._loose(view, -1.0))


@dataclass(frozen=True, slots=True)
class BookedJob:
    """A job that runs, with the load that is booked for it on each device of its slices."""

    slices: tuple[Slice, ...]
    load: float


@dataclass(frozen=True, slots=True)
class MuriMemory:
    """Devices kept for gangs that are not whole yet, loads by node, and jobs booked there."""

    kept: Mapping[JobId, tuple[Slice, ...]] = field(default_factory=dict)
    loads: Mapping[NodeId, tuple[float, ...]] = field(default_factory=dict)
    counted: Mapping[JobId, BookedJob] = field(default_factory=dict)


def as_in_muri(view: View, loose: Bools) -> Plan:
    """Start what fits; `loose` are the rows of opportunistic jobs."""
    floor = DeviceOwners(view)
    changes: dict[JobId, Allocation | None] = {}
    waiting = view.waiting()
    for row in np.flatnonzero(waiting & ~loose):
        if not floor.unowned:
            break
        job = view.job(int(row))
        if floor.collect(job):
            changes[job.id] = floor.complete_allocation(job)
    for row in np.flatnonzero(waiting & loose):
        if not floor.open:
            break
        job = view.job(int(row))
        if (on := floor.slip_in(job)) is not None:
            changes[job.id] = on
    return Plan(changes, memory=floor.remembered())


class DeviceOwners:
    """The jobs that own each device or keep it, and the nodes of opportunistic jobs."""

    def __init__(self, view: View) -> None:
        memory = recall(view, MuriMemory)
        self._view = view
        self._nodes = view.cluster.nodes
        self._kept: dict[JobId, Kept] = self._still_there(memory.kept)
        self._load = Loads(view, memory)
        firm: set[Device] = set()
        loose: set[Device] = set()
        for on in view.table.allocations:
            if on is not None:
                own = loose if on.sharing.tier is Tier.OPPORTUNISTIC else firm
                own.update(self._devices(on.slices))
        firm.update((n, g) for kept in self._kept.values() for n in kept for g in kept[n])
        every = [(n, g) for n, node in enumerate(self._nodes) for g in range(node.gpus)]
        self._free: list[list[int]] = [[] for _ in self._nodes]
        for n, g in every:
            if (n, g) not in firm:
                self._free[n].append(g)
        self.unowned = sum(map(len, self._free))
        self.open = [device for device in every if device not in loose]

    # ---- guaranteed jobs

    def collect(self, job: Job) -> bool:
        """Keep more devices for a gang; whether it is whole now."""
        mine = self._kept.setdefault(job.id, {})
        missing = job.demand.gpus - sum(map(len, mine.values()))
        for kind in self._kinds(job, mine):
            most = self._view.cluster.node_size(kind)
            if job.demand.gpus > self._view.cluster.gpus_by_kind[kind]:
                continue
            if job.demand.gpus > most:
                missing = self._whole_nodes(mine, kind, missing)
            elif mine:
                missing -= self._keep(mine, next(iter(mine)), missing)
            elif (node := self._roomiest(kind, missing)) is not None:
                missing -= self._keep(mine, node, missing)
            if mine:
                break
        if not mine:
            del self._kept[job.id]
        return missing == 0

    def complete_allocation(self, job: Job) -> Allocation:
        """The allocation of a gang that is whole; nothing is kept for it any more."""
        parts = self._kept.pop(job.id)
        masks = {node: sum(1 << gpu for gpu in gpus) for node, gpus in sorted(parts.items())}
        slices = tuple(self._view.free.slice_of(node, mask) for node, mask in masks.items())
        self._load.add([(n, g) for n in parts for g in parts[n]], LAST)
        self._load.count(job.id, slices, FIRM_LOAD)
        return Allocation(slices, FIRM)

    def remembered(self) -> MuriMemory:
        kept = {
            job: tuple(Slice(self._nodes[n].id, tuple(gpus)) for n, gpus in parts.items())
            for job, parts in self._kept.items()
        }
        return MuriMemory(kept, self._load.remembered(), self._load.counted)

    def _kinds(self, job: Job, mine: Kept) -> tuple[str, ...]:
        if mine:
            return (self._nodes[next(iter(mine))].kind,)
        kinds = self._view.cluster.kinds
        return tuple(k for k in kinds if not job.demand.kinds or k in job.demand.kinds)

    def _whole_nodes(self, mine: Kept, kind: str, missing: int) -> int:
        for node, machine in enumerate(self._nodes):
            wanted = min(machine.gpus, missing)
            if wanted and machine.kind == kind and len(self._free[node]) >= wanted:
                missing -= self._keep(mine, node, wanted)
        return missing

    def _roomiest(self, kind: str, wanted: int) -> int | None:
        """The first node with room for all, else the first of those with most room."""
        best = None
        for node, machine in enumerate(self._nodes):
            room = len(self._free[node])
            if machine.kind != kind or machine.gpus < wanted or not room:
                continue
            if room >= wanted:
                return node
            if best is None or room > len(self._free[best]):
                best = node
        return best

    def _keep(self, mine: Kept, node: int, wanted: int) -> int:
        taken = self._free[node][:wanted]
        if taken:
            self._free[node] = self._free[node][wanted:]
            mine[node] = sorted([*mine.get(node, ()), *taken])
            self.unowned -= len(taken)
            self._load.add([(node, gpu) for gpu in taken], FIRM_LOAD - LAST)
        return len(taken)

    # ---- opportunistic jobs

    def slip_in(self, job: Job) -> Allocation | None:
        """The least loaded devices that no opportunistic job is on."""
        wanted = job.demand.kinds
        for kind in self._view.cluster.kinds:
            if wanted and kind not in wanted:
                continue
            here = [d for d in self.open if self._nodes[d[0]].kind == kind]
            if len(here) >= job.demand.gpus:
                taken = sorted(here, key=self._load.of)[: job.demand.gpus]
                self.open = [device for device in self.open if device not in taken]
                on = opportunistic(self._view, taken, LOOSE)
                self._load.add(taken, LOOSE_LOAD)
                self._load.count(job.id, on.slices, LOOSE_LOAD)
                return on
        return None

    # ---- inside

    def _devices(self, slices: tuple[Slice, ...]) -> Iterator[Device]:
        index = self._view.cluster.index
        for part in slices:
            for gpu in part.gpus:
                yield index[part.node], gpu

    def _still_there(self, kept: Mapping[JobId, tuple[Slice, ...]]) -> dict[JobId, Kept]:
        """Keep devices for jobs that still wait, on nodes that still run."""
        table, index = self._view.table, self._view.cluster.index
        left: dict[JobId, Kept] = {}
        for job, slices in kept.items():
            if job in table and not table.held[table.row(job)]:
                parts = {index[s.node]: list(s.gpus) for s in slices if s.node in index}
                if parts:
                    left[job] = parts
        return left


class Loads:
    """The load that is booked on every device, rounding and all."""

    def __init__(self, view: View, memory: MuriMemory) -> None:
        self._cluster = view.cluster
        self._at = [
            list(memory.loads.get(node.id, (0.0,) * node.gpus)) for node in view.cluster.nodes
        ]
        self.counted = dict(memory.counted)
        running = view.table
        for job, was in memory.counted.items():
            if job not in running or not running.held[running.row(job)]:
                del self.counted[job]
                index = self._cluster.index
                there = [part for part in was.slices if part.node in index]
                self.add([(index[part.node], g) for part in there for g in part.gpus], -was.load)

    def of(self, device: Device) -> float:
        return self._at[device[0]][device[1]]

    def add(self, devices: Sequence[Device], load: float) -> None:
        """Book more on each of the devices."""
        for node, gpu in devices:
            self._at[node][gpu] += load

    def count(self, job: JobId, slices: tuple[Slice, ...], load: float) -> None:
        """Remember what to take off when the job has left."""
        self.counted[job] = BookedJob(slices, load)

    def remembered(self) -> dict[NodeId, tuple[float, ...]]:
        """The loads by node."""
        return {n.id: tuple(at) for n, at in zip(self._cluster.nodes, self._at, strict=True)}
