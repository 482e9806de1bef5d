"""Links between the GPUs of a node, and between nodes above it.

Both are optional: a node without them says nothing of links, and nothing that reads no links sees
a difference. Inside a node bandwidths are GB/s in one direction; on the network they are Gbit/s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

Matrix = tuple[tuple[float, ...], ...]
Groups = tuple[tuple[int, ...], ...]
Pairwise = Callable[[int, int], float]

# What a pair of GPUs is apart: joined by NVLink, under a PCIe switch, on a socket, or across two.
NVLINK, SWITCH, SOCKET, ACROSS = 1.0, 2.0, 10.0, 20.0
MOST_GPUS = 16  # scores of all sets of GPUs are kept in tables
HOST_GB_S = 10.0


@frozen
class GpuLink:
    """NVLink between two GPUs of a node: how many lanes, and GB/s of all of them one way."""

    a: int
    b: int
    width: int
    gb_s: float


@dataclass(frozen=True)
class NodeTopology:
    """The links inside a node; a type of machine, shared by all nodes of it.

    A pair in `links` has NVLink of its own. `fabric_gb_s` above 0 joins every other pair through
    NVSwitch with `fabric_width` lanes. All that is left goes over PCIe: at `switch_gb_s` between
    GPUs of one of the `switches`, at `host_gb_s` elsewhere. `sockets` and `switches` are the GPU
    numbers behind each; empty: all behind one. `ring_fit` are the 14 coefficients of MAPA's
    regression of a ring's measured bandwidth on its links, where someone fitted them; empty: a
    ring is as fast as its slowest link. Raises InvalidConfig naming the field that is wrong.
    """

    name: str
    gpus: int
    links: tuple[GpuLink, ...] = ()
    sockets: Groups = ()
    switches: Groups = ()
    host_gb_s: float = HOST_GB_S
    switch_gb_s: float = 0.0
    fabric_gb_s: float = 0.0
    fabric_width: int = 0
    ring_fit: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= MOST_GPUS:
            raise self._wrong("gpus", self.gpus, f"1 to {MOST_GPUS}")
        for name, value, least in (
            ("host_gb_s", self.host_gb_s, 1e-6),
            ("switch_gb_s", self.switch_gb_s, 0.0),
            ("fabric_gb_s", self.fabric_gb_s, 0.0),
        ):
            if not least <= value < 1e6:
                raise self._wrong(name, value, "a bandwidth in GB/s")
        if (self.fabric_gb_s > 0.0) != (self.fabric_width > 0):
            raise self._wrong("fabric_width", self.fabric_width, "set together with fabric_gb_s")
        if len(self.ring_fit) not in (0, 14):
            raise self._wrong("ring_fit", self.ring_fit, "14 coefficients")
        self._check_links()
        for name, groups in (("sockets", self.sockets), ("switches", self.switches)):
            if groups and sorted(gpu for group in groups for gpu in group) != list(
                range(self.gpus)
            ):
                raise self._wrong(name, groups, f"each of the GPUs 0 to {self.gpus - 1} once")

    def _check_links(self) -> None:
        seen: set[frozenset[int]] = set()
        for link in self.links:
            pair = frozenset((link.a, link.b))
            if len(pair) != 2 or not pair <= set(range(self.gpus)):
                raise self._wrong("links", link, f"two GPUs from 0 to {self.gpus - 1}")
            if pair in seen:
                raise self._wrong("links", link, "each pair once")
            if link.width < 1 or not 0.0 < link.gb_s < 1e6:
                raise self._wrong("links", link, "a width of 1 or more and a bandwidth in GB/s")
            seen.add(pair)

    def _wrong(self, field: str, value: object, expected: str) -> InvalidConfig:
        return InvalidConfig(
            f"topology {self.name!r}: {field}={value!r} cannot be", hint=f"{field}: {expected}"
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # asked for at every look into a table of choices
        # Of numbers alone: those of texts differ from process to process, and this is pickled.
        return hash((self.gpus, self.links, self.sockets, self.host_gb_s, self.fabric_gb_s))

    @cached_property
    def bandwidths(self) -> Matrix:
        """GB/s of the best link between each pair of GPUs, one way; 0 on the diagonal."""
        return self._matrix(
            {(link.a, link.b): link.gb_s for link in self.links}, self._unlinked_gb_s
        )

    @cached_property
    def widths(self) -> Groups:
        """NVLink lanes between each pair of GPUs; 0 where they talk over PCIe."""
        made = self._matrix(
            {(link.a, link.b): link.width for link in self.links}, self._unlinked_width
        )
        return tuple(tuple(int(links) for links in row) for row in made)

    @cached_property
    def distances(self) -> Matrix:
        """The distance of each pair: 1 by NVLink, 2 by PCIe switch, 10 on a socket, 20 across."""
        return self._matrix(
            {(link.a, link.b): NVLINK for link in self.links}, self._unlinked_distance
        )

    @cached_property
    def socket_of(self) -> tuple[int, ...]:
        """The socket of each GPU."""
        return self._group_of(self.sockets)

    @cached_property
    def switch_of(self) -> tuple[int, ...]:
        """The PCIe switch of each GPU."""
        return self._group_of(self.switches)

    @property
    def uniform(self) -> bool:
        """True if every pair is joined alike, so that any GPUs are as good as any others."""
        first = self.bandwidths[0][-1]
        rows = self.bandwidths
        return all(rows[a][b] == first for a, b in combinations(range(self.gpus), 2))

    @property
    def summary(self) -> str:
        """The links between its GPUs, in a word."""
        if self.fabric_width:
            return f"NVSwitch, {self.fabric_width} lanes"
        lanes = max((link.width for link in self.links), default=0)
        return f"NVLink, {lanes} lane{'s' * (lanes > 1)} at most" if lanes else "PCIe"

    def _unlinked_gb_s(self, a: int, b: int) -> float:
        if self.fabric_gb_s:
            return self.fabric_gb_s
        same = self.switches and self.switch_of[a] == self.switch_of[b]
        return self.switch_gb_s if same and self.switch_gb_s else self.host_gb_s

    def _unlinked_width(self, a: int, b: int) -> float:  # noqa: ARG002 - same shape as the others
        return self.fabric_width

    def _unlinked_distance(self, a: int, b: int) -> float:
        if self.fabric_gb_s:
            return NVLINK
        if self.switches and self.switch_of[a] == self.switch_of[b]:
            return SWITCH
        return SOCKET if self.socket_of[a] == self.socket_of[b] else ACROSS

    def _matrix(self, linked: Mapping[tuple[int, int], float], otherwise: Pairwise) -> Matrix:
        rows = [[0.0] * self.gpus for _ in range(self.gpus)]
        for a, b in combinations(range(self.gpus), 2):
            speed = linked.get((a, b), linked.get((b, a)))
            rows[a][b] = rows[b][a] = otherwise(a, b) if speed is None else speed
        return tuple(map(tuple, rows))

    def _group_of(self, groups: Groups) -> tuple[int, ...]:
        number = {gpu: i for i, group in enumerate(groups) for gpu in group}
        return tuple(number.get(gpu, 0) for gpu in range(self.gpus))


@frozen
class Uplink:
    """A network link on a node's way up to the core: its network card, its rack's uplink...

    Nodes that have the same one share it. `gbps` is what it carries, Gbit/s each way.
    """

    name: str
    gbps: float


def find_crossed(ways: Sequence[tuple[Uplink, ...]]) -> tuple[Uplink, ...]:
    """The links that traffic among nodes crosses; `ways` are the uplinks of each of the nodes.

    A link is crossed if it is above some of the nodes and not above all of them.
    """
    if len(ways) < 2:
        return ()
    counts: dict[Uplink, int] = {}
    for way in ways:
        for link in way:
            counts[link] = counts.get(link, 0) + 1
    return tuple(link for link, count in counts.items() if count < len(ways))


def check_uplinks(ways: Iterable[tuple[Uplink, ...]]) -> None:
    """Raise InvalidConfig for a link of no capacity, or one that has two."""
    known: dict[str, float] = {}
    for way in ways:
        for link in way:
            if not 0.0 < link.gbps < 1e9:
                raise InvalidConfig(
                    f"network link {link.name!r}: gbps is {link.gbps:g}", hint="in Gbit/s, above 0"
                )
            if known.setdefault(link.name, link.gbps) != link.gbps:
                raise InvalidConfig(
                    f"network link {link.name!r} has {known[link.name]:g} and {link.gbps:g} Gbit/s",
                    hint="give each link one capacity, or links two names",
                )
