"""Machines: nodes of GPUs of one kind each, written `6x4:t4+3x8:rtx+2x8:a100`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from weft.core.errors import InvalidConfig
from weft.core.model import Allocation, NodeId

NAMED_CLUSTERS = {
    "sia-hetero": "6x4:t4+3x8:rtx+2x8:a100",
    "sia-homo": "16x4:t4",
    "sia-physical": "3x8:rtx+2x8:a100+1x4:quad",
    "muri": "8x8:v100",
    "tiresias-testbed": "15x4:p100",
    "philly": "352x8:v100",
    "venus": "133x8:v100",
    "earth": "143x8:v100",
    "saturn": "262x8:v100",
    "uranus": "264x8:p100",
    "seren": "286x8:a100",
    "kalos": "302x8:a100",
}
# Memory of one device in GB, of the kinds people write; other kinds are taken as boundless.
GPU_MEM_GB = {
    "k80": 12.0,
    "p100": 16.0,
    "p40": 24.0,
    "v100": 32.0,
    "t4": 16.0,
    "rtx": 11.0,
    "quad": 24.0,
    "rtx3090": 24.0,
    "rtx4090": 24.0,
    "a10": 24.0,
    "l4": 24.0,
    "l40s": 48.0,
    "a100": 40.0,
    "h100": 80.0,
    "h200": 141.0,
    "b200": 180.0,
}
CPUS_PER_GPU = 8.0
MEM_GB_PER_GPU = 64.0
MAX_GPUS = 1_000_000
CPU = "cpu"  # the kind of slots where there are no GPUs


@dataclass(frozen=True, slots=True)
class Node:
    """One machine: `gpus` devices of one `kind`, and its host.

    `gpu_mem_gb` is the memory of each device; 0 takes what is known of the kind.
    """

    id: NodeId
    kind: str
    gpus: int
    cpus: float = 0.0
    mem_gb: float = 0.0
    rack: str = ""
    gpu_mem_gb: float = 0.0

    @property
    def device_gb(self) -> float:
        """Memory of one device; boundless where nobody knows."""
        return self.gpu_mem_gb or GPU_MEM_GB.get(self.kind, inf)


@dataclass(frozen=True)
class Cluster:
    """The machines there are. A change of nodes makes a new Cluster."""

    nodes: tuple[Node, ...]
    name: str = field(default="", compare=False)

    @cached_property
    def index(self) -> dict[NodeId, int]:
        """Position of each node."""
        return {node.id: i for i, node in enumerate(self.nodes)}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """GPU kinds in order of first appearance."""
        return tuple(dict.fromkeys(node.kind for node in self.nodes))

    @cached_property
    def gpus_by_kind(self) -> dict[str, int]:
        """Devices of each kind."""
        counts = dict.fromkeys(self.kinds, 0)
        for node in self.nodes:
            counts[node.kind] += node.gpus
        return counts

    @cached_property
    def gpus(self) -> int:
        """Devices in all."""
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def _node_sizes(self) -> dict[str, int]:
        sizes = dict.fromkeys(self.kinds, 0)
        for node in self.nodes:
            sizes[node.kind] = max(sizes[node.kind], node.gpus)
        return sizes

    def node_size(self, kind: str) -> int:
        """GPUs of the largest node of `kind`."""
        return self._node_sizes[kind]

    def kind_of(self, allocation: Allocation) -> str:
        """The kind of the devices held; a gang is of one kind."""
        return self.nodes[self.index[allocation.slices[0].node]].kind

    def without(self, node: NodeId) -> Cluster:
        """The same cluster after losing `node`."""
        return Cluster(tuple(n for n in self.nodes if n.id != node), self.name)

    def having(self, node: Node, order: dict[NodeId, int]) -> Cluster:
        """The same cluster after `node` came up, at its place in `order` or at the end."""
        nodes = [*(n for n in self.nodes if n.id != node.id), node]
        return Cluster(tuple(sorted(nodes, key=lambda n: order.get(n.id, len(order)))), self.name)


def parse_cluster(text: str) -> Cluster:
    """Read a cluster from its name or from `NODESxGPUS:KIND` parts joined by `+`."""
    spec = NAMED_CLUSTERS.get(text, text)
    nodes: list[Node] = []
    for part in spec.split("+"):
        match = re.fullmatch(r"\s*(\d+)x(\d+):([A-Za-z][\w.-]*)\s*", part)
        if match is None:
            raise _unreadable(text, part)
        count, gpus, kind = int(match[1]), int(match[2]), match[3]
        if not 1 <= count * gpus <= MAX_GPUS:
            raise InvalidConfig(
                f"cluster {text!r}: {part.strip()!r} has {count * gpus} GPUs",
                hint=f"use at least 1 node of 1 GPU, and at most {MAX_GPUS:,} GPUs",
            )
        nodes += [
            Node(
                NodeId(f"{kind}-{len(nodes) + i}"),
                kind,
                gpus,
                cpus=gpus * CPUS_PER_GPU,
                mem_gb=gpus * MEM_GB_PER_GPU,
            )
            for i in range(count)
        ]
    return Cluster(tuple(nodes), text)


def _unreadable(text: str, part: str) -> InvalidConfig:
    from difflib import get_close_matches

    close = get_close_matches(text, NAMED_CLUSTERS, n=1)
    return InvalidConfig(
        f"cannot read cluster {text!r}: {part.strip()!r} is not NODESxGPUS:KIND"
        + (f"; did you mean {close[0]!r}?" if close else ""),
        hint="for example 8x8:v100, or 6x4:t4+2x8:a100; `weft list cluster` shows named ones",
    )
