"""The speed of jobs by the links between their GPUs: inside nodes, and on the network.

An iteration takes its computation and what its workers send over the slowest of what joins them:
the effective bandwidth of the GPUs it holds of each node, and its part of every network link that
it crosses.
"""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import BusSharing
from weft.core.knowledge.traffic import Traffic
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job
from weft.core.model.topology import Uplink
from weft.core.protocols import Coupling, LinkSharing, Resident
from weft.formulas.network.link_scores import effective_gb_s
from weft.formulas.training.solo_times import FILE as SOLO
from weft.formulas.training.solo_times import Described, describe, read_solo_times
from weft.frozen import frozen

COLOCATED = "colocated_times.csv"
# Of the published pairs some hold the other job's time, or next to none: no job is faster beside
# another, and no two that were meant to disturb each other took twice as long.
MOST_SLOWER = 2.0


@frozen
class OutOfStep:
    """Jobs that share a link know nothing of each other's phases.

    While one sends, another sends too for the share of its iteration that it communicates; those
    that do so at the same time get equal parts.
    """

    def gb_s(self, resident: Resident, crossing: Mapping[Uplink, Sequence[Resident]]) -> float:  # noqa: ARG002 - the same for everyone
        """The least of its parts of the links."""
        return min(
            (link.gbps / 8.0 / (1.0 + _busy(others)) for link, others in crossing.items()),
            default=inf,
        )


def _busy(others: Sequence[Resident]) -> float:
    return sum(other.job.traffic.share for other in others if other.job.traffic is not None)


@frozen
class JoinedLinks:
    """Jobs on a cluster that says how it is joined.

    `devices` is the truth about jobs that share devices, None: a claim gives that part of the
    speed. `links` is the truth about jobs that cross the same network links, `bus` about jobs on
    one socket: each neighbour slows a job in turn. None without measurements.
    """

    cluster: Cluster
    devices: Coupling | None = None
    links: LinkSharing = OutOfStep()
    bus: BusSharing | None = None

    def meeting_places(self, resident: Resident) -> Iterator[Hashable]:
        """The network links and the sockets that a job meets others on."""
        if resident.job.traffic is not None:
            yield from self.cluster.crossed(resident.on)
        if self.bus is not None:
            yield from self._sockets(resident.on)

    def speed(self, resident: Resident, beside: Sequence[Resident]) -> float:
        """Return the speed that neighbours on devices leave it, times what links leave of that."""
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


# ---- Measured times of jobs that share a socket, by the authors of topology-aware scheduling
#
# A folder has `solo_times.csv` and `colocated_times.csv`: the time of a job beside another one,
# whose columns are `other_model`, `other_batch` and `other_gpus`.


@frozen
class MeasuredBus:
    """Speeds beside another job on the same socket; 1 for a pair without measurements.

    `refused` are the pairs whose times cannot be: shorter than alone, or more than twice as long.
    """

    speeds: Mapping[tuple[Described, Described], float]
    refused: int = 0

    def speed(self, job: Job, beside: Job) -> float:
        pair = (job.model, job.demand.gpus), (beside.model, beside.demand.gpus)
        return self.speeds.get(pair, 1.0)


def read_bus(folder: Path) -> MeasuredBus:
    """The tables of a folder; InvalidConfig naming the line that cannot be read."""
    alone = read_solo_times(folder / SOLO).near
    path, line = folder / COLOCATED, 1
    speeds: dict[tuple[Described, Described], float] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for line, row in enumerate(csv.DictReader(stream), 2):  # noqa: B007 - named in errors
                run = describe(row["model"], row["batch"]), int(row["gpus"])
                other = describe(row["other_model"], row["other_batch"]), int(row["other_gpus"])
                speeds[run, other] = alone[run] / float(row["time_s"])
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, ValueError, TypeError, ZeroDivisionError) as error:
        raise InvalidConfig(
            f"{path}, line {line}: {error!r} is missing or no number", hint=f"see {SOLO} as well"
        ) from error
    kept = {pair: speed for pair, speed in speeds.items() if 1.0 / MOST_SLOWER <= speed <= 1.0}
    return MeasuredBus(kept, len(speeds) - len(kept))
