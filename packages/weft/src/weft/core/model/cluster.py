"""Machines: nodes of GPUs of one kind each, written `6x4:t4+3x8:rtx+2x8:a100`.

A part may say how its GPUs are joined (`@dgx-1v`), how fast its network cards are (`/nic=50`) and
how many nodes share an uplink of a rack (`/rack=4:100`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from math import inf

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, NodeId
from weft.core.model.node_types import find_node_type
from weft.core.model.topology import NodeTopology, Uplink, check_uplinks, find_crossed
from weft.frozen import frozen
from weft.plural import say_gpus

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


@frozen
class Node:
    """One machine: `gpus` devices of one `kind`, and its host.

    `gpu_mem_gb` is the memory of each device; 0: as known for the kind. `topology` is how its
    devices are joined, and `uplinks` are the network links between it and the core of the
    network, from its own card upwards; None and empty where not stated. `loaned` says that it is
    another cluster's, which may want it back.
    """

    id: NodeId
    kind: str
    gpus: int
    cpus: float = 0.0
    mem_gb: float = 0.0
    rack: str = ""
    gpu_mem_gb: float = 0.0
    topology: NodeTopology | None = None
    uplinks: tuple[Uplink, ...] = ()
    loaned: bool = False

    @property
    def device_gb(self) -> float:
        """Memory of one device; unlimited where unknown."""
        return self.gpu_mem_gb or GPU_MEM_GB.get(self.kind, inf)


@frozen
class OutOfUse:
    """A machine that its cluster gives no jobs: `drained` by a person, or gone; and why."""

    node: Node
    drained: bool
    reason: str


@dataclass(frozen=True)
class Cluster:
    """The machines there are. A change of nodes makes a new Cluster."""

    nodes: tuple[Node, ...]
    name: str = field(default="", compare=False)

    @cached_property
    def index(self) -> dict[NodeId, int]:
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

    @cached_property
    def largest_nodes(self) -> dict[str, tuple[int, int]]:
        """GPUs of the largest nodes of each kind, and how many of those nodes there are."""
        counts = Counter([(node.kind, node.gpus) for node in self.nodes])
        return {kind: (size, counts[kind, size]) for kind, size in self._node_sizes.items()}

    @cached_property
    def joined(self) -> bool:
        """True if anything is known about links, inside a node or above."""
        return any(node.topology is not None or node.uplinks for node in self.nodes)

    @cached_property
    def links(self) -> dict[str, Uplink]:
        """The network links there are, by name."""
        return {link.name: link for node in self.nodes for link in node.uplinks}

    def crossed(self, allocation: Allocation) -> tuple[Uplink, ...]:
        """The network links that the traffic of a job on `allocation` crosses."""
        nodes = (self.nodes[self.index[part.node]] for part in allocation.slices)
        return find_crossed([node.uplinks for node in nodes])

    def kind_of(self, allocation: Allocation) -> str:
        """The kind of the devices held; a gang is of one kind."""
        return self.nodes[self.index[allocation.slices[0].node]].kind

    def without(self, node: NodeId) -> Cluster:
        """The cluster after losing `node`."""
        return Cluster(tuple(n for n in self.nodes if n.id != node), self.name)

    def having(self, node: Node, order: dict[NodeId, int]) -> Cluster:
        """The cluster after `node` came up, at its place in `order` or at the end."""
        after_all = not self.nodes or order.get(node.id, len(order)) >= order.get(
            self.nodes[-1].id, len(order)
        )
        if after_all and node.id not in self.index:
            grown = Cluster((*self.nodes, node), self.name)
            vars(grown)["index"] = {**self.index, node.id: len(self.nodes)}  # known already
            return grown
        nodes = [*(n for n in self.nodes if n.id != node.id), node]
        return Cluster(tuple(sorted(nodes, key=lambda n: order.get(n.id, len(order)))), self.name)


PART = re.compile(
    r"(?P<count>\d+)x(?P<gpus>\d+):(?P<kind>[A-Za-z][\w.-]*)(?:@(?P<type>[\w.-]+))?"
    r"(?:/nic=(?P<nic>[\d.]+))?(?:/rack=(?P<rack>\d+):(?P<up>[\d.]+))?"
)


def parse_cluster(text: str) -> Cluster:
    """Read a cluster from its name or from `NODESxGPUS:KIND` parts joined by `+`."""
    count_machines(text)
    nodes: list[Node] = []
    racks = 0
    for match in _parts(text):
        nodes += _part_nodes(f"cluster {text!r}", match, len(nodes), racks)
        racks += -(-int(match["count"]) // int(match["rack"])) if match["rack"] else 0
    check_uplinks(node.uplinks for node in nodes if node.uplinks)
    return Cluster(tuple(nodes), text)


def count_machines(text: str) -> tuple[int, int]:
    """Nodes and GPUs of a cluster as it is written, before any of it is made."""
    nodes = gpus = 0
    for match in _parts(text):
        count, each = _count(match["count"]), _count(match["gpus"])
        nodes, gpus = nodes + count, gpus + count * each
        if not count * each or gpus > MAX_GPUS:
            raise InvalidConfig(
                f"cluster {text!r}: up to {match[0]!r} it has {say_gpus(gpus)}",
                hint=f"use at least 1 node of 1 GPU, and at most {say_gpus(MAX_GPUS)}",
            )
    return nodes, gpus


def _count(digits: str) -> int:
    """A number that someone wrote; past the limit it does not matter by how much."""
    return int(digits) if len(digits) < 10 else MAX_GPUS + 1


def _parts(text: str) -> list[re.Match[str]]:
    parts = []
    for part in NAMED_CLUSTERS.get(text, text).split("+"):
        match = PART.fullmatch(part.strip())
        if match is None:
            raise _unreadable(text, part)
        parts.append(match)
    return parts


def _part_nodes(where: str, match: re.Match[str], first: int, racks: int) -> list[Node]:
    """The nodes of one part; `first` and `racks` are how many there were before."""
    gpus, kind = int(match["gpus"]), match["kind"]
    topology = find_node_type(match["type"], gpus, where) if match["type"] else None
    nic = _gbps(where, "nic", match["nic"]) if match["nic"] else 0.0
    size = int(match["rack"] or 0)
    if match["rack"] and size < 1:
        raise InvalidConfig(f"{where}: rack={match['rack']} nodes", hint="1 or more in a rack")
    up = _gbps(where, "rack", match["up"]) if size else 0.0
    made = []
    for i in range(int(match["count"])):
        name = NodeId(f"{kind}-{first + i}")
        rack = f"rack-{racks + i // size}" if size else ""
        ways = ((Uplink(name, nic),) if match["nic"] else ()) + (
            (Uplink(rack, up),) if size else ()
        )
        cpus, mem_gb = gpus * CPUS_PER_GPU, gpus * MEM_GB_PER_GPU
        made.append(Node(name, kind, gpus, cpus, mem_gb, rack, 0.0, topology, ways))
    return made


def _gbps(where: str, field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        what = f"{where}: {field}={text!r} is not a number of Gbit/s"
        raise InvalidConfig(what, hint="for example 8x8:a100/nic=100/rack=4:200") from error


def _unreadable(text: str, part: str) -> InvalidConfig:
    close = get_close_matches(text, NAMED_CLUSTERS, n=1)
    return InvalidConfig(
        f"cannot read cluster {text!r}: {part.strip()!r} is not NODESxGPUS:KIND"
        + (f"; did you mean {close[0]!r}?" if close else ""),
        hint="for example 8x8:v100, 6x4:t4+2x8:a100 or 8x8:v100@dgx-1v/nic=100; "
        "`weft list cluster` shows named ones",
    )
