"""The speed of jobs by the links between their GPUs: inside nodes, and on the network.

An iteration takes its computation and what its workers send over the slowest of what joins them:
the effective bandwidth of the GPUs it holds of each node, and its part of every network link that
it crosses.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import inf

from weft.core.knowledge.knowledge import BusSharing
from weft.core.knowledge.traffic import Traffic
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation
from weft.core.model.topology import Uplink
from weft.core.protocols import Coupling, LinkSharing, Resident
from weft.formulas.network.link_scores import effective_gb_s
from weft.frozen import frozen


@frozen
class OutOfStep:
    """Jobs that share a link know nothing of each other's phases.

    While one sends, another sends too for the share of its iteration that it communicates; those
    that do so at the same time get equal parts.
    """

    def gb_s(self, resident: Resident, crossing: Mapping[Uplink, Sequence[Resident]]) -> float:  # noqa: ARG002 - the same for everybody
        """The least of its parts of the links."""
        return min(
            (link.gbps / 8.0 / (1.0 + _busy(others)) for link, others in crossing.items()),
            default=inf,
        )


def _busy(others: Sequence[Resident]) -> float:
    return sum(other.job.traffic.share for other in others if other.job.traffic is not None)


@frozen
class Joined:
    """Jobs on a cluster that says how it is joined.

    `devices` is the truth about jobs that share devices, None: a claim gives that part of the
    speed. `links` is the truth about jobs that cross the same network links, `bus` about jobs on
    one socket: each neighbour slows a job in turn. None without measurements.
    """

    cluster: Cluster
    devices: Coupling | None = None
    links: LinkSharing = OutOfStep()
    bus: BusSharing | None = None

    def places(self, resident: Resident) -> Iterator[Hashable]:
        """The network links and the sockets that a job meets others on."""
        if resident.job.traffic is not None:
            yield from self.cluster.crossed(resident.on)
        if self.bus is not None:
            yield from self._sockets(resident.on)

    def speed(self, resident: Resident, beside: Sequence[Resident]) -> float:
        """What its neighbours on devices leave it, times what links leave it of that."""
        here = _list_devices(resident.on)
        sharing = [other for other in beside if here & _list_devices(other.on)]
        if self.devices is not None:
            speed = self.devices.speed(resident, sharing)
        else:
            speed = min(resident.on.sharing.share / resident.job.demand.share, 1.0)
        if self.bus is not None:
            speed *= self._left_by_bus(self.bus, resident, beside)
        traffic = resident.job.traffic
        if traffic is None or resident.on.gpus < 2:
            return speed
        return speed * self._relative(resident, traffic, beside)

    def _relative(self, resident: Resident, traffic: Traffic, beside: Sequence[Resident]) -> float:
        gb_s = self._inside_gb_s(resident.on, traffic)
        if links := self.cluster.crossed(resident.on):
            crossing: dict[Uplink, list[Resident]] = {link: [] for link in links}
            for other in beside:
                if other.job.traffic is not None:
                    for link in self.cluster.crossed(other.on):
                        if link in crossing:
                            crossing[link].append(other)
            gb_s = min(gb_s, self.links.gb_s(resident, crossing))
        if gb_s == inf:
            return 1.0  # how they are joined is unknown
        return traffic.iteration_s / traffic.seconds_at(gb_s)

    def _left_by_bus(
        self, bus: BusSharing, resident: Resident, beside: Sequence[Resident]
    ) -> float:
        here, speed = set(self._sockets(resident.on)), 1.0
        for other in beside:
            if not here.isdisjoint(self._sockets(other.on)):
                speed *= bus.speed(resident.job, other.job)
        return speed

    def _sockets(self, on: Allocation) -> Iterator[Hashable]:
        for part in on.slices:
            topology = self.cluster.nodes[self.cluster.index[part.node]].topology
            if topology is not None:
                for socket in {topology.socket_of[gpu] for gpu in part.gpus}:
                    yield part.node, "socket", socket

    def _inside_gb_s(self, on: Allocation, traffic: Traffic) -> float:
        least = inf
        for part in on.slices:
            topology = self.cluster.nodes[self.cluster.index[part.node]].topology
            if topology is not None and len(part.gpus) > 1:
                least = min(least, effective_gb_s(topology, traffic.pattern, part.gpus))
        return least


def _list_devices(on: Allocation) -> set[tuple[str, int]]:
    return {(part.node, gpu) for part in on.slices for gpu in part.gpus}
