"""Devices and hosts that allocations claim, counted from scratch for every question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, Tier

SLACK = 1e-6
RESIDENTS = 4  # opportunistic jobs that may share one device
Device = tuple[str, int]


def devices_of(on: Allocation) -> Iterator[Device]:
    """Every device, by node and number."""
    for part in on.slices:
        for gpu in part.gpus:
            yield part.node, gpu


def gpus_of(on: Allocation, besides: Allocation | None = None) -> float:
    """GPUs that are held, a part of a device counted as that part."""
    both = {*devices_of(on), *(devices_of(besides) if besides is not None else ())}
    return len(both) * on.sharing.share


@dataclass(slots=True)
class DeviceClaims:
    """The sum of some allocations' claims."""

    parts: dict[Device, float] = field(default_factory=dict)
    gb: dict[Device, float] = field(default_factory=dict)
    residents: dict[Device, int] = field(default_factory=dict)
    cpus: dict[str, float] = field(default_factory=dict)
    mem_gb: dict[str, float] = field(default_factory=dict)
    owners: dict[Device, list[str]] = field(default_factory=dict)
    hosted: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, held: Iterable[tuple[str, Allocation]]) -> DeviceClaims:
        claims = cls()
        for job, on in held:
            claims.add(job, on)
        return claims

    def add(self, job: str, on: Allocation) -> None:
        sharing = on.sharing
        for device in devices_of(on):
            self.owners.setdefault(device, []).append(job)
            if sharing.tier is Tier.OPPORTUNISTIC:
                self.residents[device] = self.residents.get(device, 0) + 1
            else:
                self.parts[device] = self.parts.get(device, 0.0) + sharing.share
            if sharing.gpu_mem_gb:
                self.gb[device] = self.gb.get(device, 0.0) + sharing.gpu_mem_gb
        for part in on.slices:
            if part.gpus:
                self.cpus[part.node] = self.cpus.get(part.node, 0.0) + part.cpus
                self.mem_gb[part.node] = self.mem_gb.get(part.node, 0.0) + part.mem_gb
            else:  # a job without devices has room of its own on the host
                cpus, mem_gb = self.hosted.get(part.node, (0.0, 0.0))
                self.hosted[part.node] = (cpus + part.cpus, mem_gb + part.mem_gb)

    def faults(self, nodes: Mapping[str, Node]) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Yield claims beyond what there is: a word, the jobs, a sentence."""
        for (name, gpu), owners in self.owners.items():
            device, node, jobs = (name, gpu), nodes.get(name), tuple(owners)
            if node is None:
                yield "no such node", jobs, f"{name} is not up"
            elif not 0 <= gpu < node.gpus:
                yield "no such device", jobs, f"{name} has {node.gpus} devices, not number {gpu}"
            elif (part := self.parts.get(device, 0.0)) > 1.0 + SLACK:
                yield "over-claimed", jobs, f"GPU {gpu} of {name} is claimed {part:g} times"
            elif (gb := self.gb.get(device, 0.0)) > node.device_gb + SLACK:
                text = f"{gb:g} of {node.device_gb:g} GB of GPU {gpu} of {name} are claimed"
                yield "memory over-claimed", jobs, text
            elif (count := self.residents.get(device, 0)) > RESIDENTS:
                yield "over-claimed", jobs, f"{count} opportunistic jobs share GPU {gpu} of {name}"
        yield from self._host_faults(nodes)

    def _host_faults(self, nodes: Mapping[str, Node]) -> Iterator[tuple[str, tuple[str, ...], str]]:
        for name, node in nodes.items():
            hosted = self.hosted.get(name, (0.0, 0.0))
            for word, cpus, mem_gb in (
                ("", self.cpus.get(name, 0.0), self.mem_gb.get(name, 0.0)),
                ("jobs without GPUs: ", *hosted),
            ):
                if node.cpus and cpus > node.cpus + SLACK:
                    text = f"{word}{cpus:g} of {node.cpus:g} CPUs of {name} are claimed"
                    yield "host over-claimed", (), text
                if node.mem_gb and mem_gb > node.mem_gb + SLACK:
                    text = f"{word}{mem_gb:g} of {node.mem_gb:g} GB of {name} are claimed"
                    yield "host over-claimed", (), text

    def idle_on(self, node: Node, kept: frozenset[Device] = frozenset()) -> int:
        """Devices of a node that no job claims, that are not kept, and have host beside them."""
        free = sum(
            device not in self.owners and device not in kept
            for device in ((node.id, gpu) for gpu in range(node.gpus))
        )
        for whole, used in ((node.cpus, self.cpus), (node.mem_gb, self.mem_gb)):
            if whole:
                left = whole - used.get(node.id, 0.0)
                free = min(free, int((left + SLACK) // (whole / node.gpus)))
        return max(free, 0)

    def has_part(self, node: Node, share: float, kept: frozenset[Device]) -> bool:
        """Return true if a device that is claimed in part has room for a share."""
        for gpu in range(node.gpus):
            device = (node.id, gpu)
            if device not in kept and 0.0 < self.parts.get(device, 0.0) <= 1.0 - share + SLACK:
                return True
        return False


def could_start(
    job: Job,
    least: int,
    nodes: Mapping[str, Node],
    claims: DeviceClaims,
    kept: frozenset[Device] = frozenset(),
) -> bool:
    """Return true if devices for a job are idle or have room for its share; `kept` do not count."""
    demand = job.demand
    idle: dict[str, list[int]] = {}
    for node in nodes.values():
        if not demand.kinds or node.kind in demand.kinds:
            idle.setdefault(node.kind, []).append(claims.idle_on(node, kept))
    if demand.nodes:
        each = demand.gpus // demand.nodes
        return any(sum(n >= each for n in free) >= demand.nodes for free in idle.values())
    return least > 0 and any(sum(free) >= least for free in idle.values())
