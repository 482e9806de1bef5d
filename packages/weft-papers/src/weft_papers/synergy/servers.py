"""The servers of one kind during one decision: which job has how much of which host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil

from weft.core.knowledge.profile import Sensitivity
from weft.frozen import frozen

EPS = 1e-6
Parts = tuple[tuple[int, int], ...]


@frozen
class SynergyServer:
    """GPUs, cores and memory of one machine for the jobs of the round."""

    gpus: int
    cpus: float
    mem_gb: float


@frozen
class RoundJob:
    """A job of the round: its GPUs, what cores and memory do for it, where it runs now.

    `table` None: unknown, so it gets the share in proportion. `at` are (server, GPUs) pairs,
    empty for a job that waits.
    """

    gpus: int
    table: Sensitivity | None = None
    at: Parts = ()


@frozen
class ServerGrant:
    """A job's part: (server, GPUs) pairs, and cores and GB of memory for each GPU."""

    parts: Parts
    cpus: float
    mem_gb: float

    @property
    def gpus(self) -> int:
        return sum(count for _, count in self.parts)


@frozen
class ServerPoint:
    """A choice of cores and memory for each GPU, and the speed there."""

    cpus: float
    mem_gb: float
    speed: float


class Allotment:
    """Servers, the jobs of the round, and what they were granted so far.

    GPUs that a job runs on stay its own until it is granted others.
    """

    def __init__(self, servers: Sequence[SynergyServer], wants: Sequence[RoundJob]) -> None:
        self.servers = tuple(servers)
        self.wants = tuple(wants)
        self.grants: dict[int, ServerGrant] = {}
        self.gpus = [server.gpus for server in servers]
        self.cpus = [server.cpus for server in servers]
        self.mem_gb = [server.mem_gb for server in servers]
        self.fair = (
            min(server.cpus / server.gpus for server in servers),
            min(server.mem_gb / server.gpus for server in servers),
        )
        self._pinned: set[int] = set()
        for number, want in enumerate(wants):
            if want.at:
                self._pinned.add(number)
                self._move_gpus(want.at, -1)

    # ---- speeds

    def speed(self, number: int, cpus: float, mem_gb: float) -> float:
        """Speed of a job with so much for each GPU; 1 where unknown."""
        table = self.wants[number].table
        return 1.0 if table is None else table.at(cpus, mem_gb)

    def total(self) -> float:
        """Sum of the speeds of all jobs that were granted something."""
        return sum(self.speed(n, g.cpus, g.mem_gb) for n, g in self.grants.items())

    def demand(self, number: int) -> tuple[float, float]:
        """The least that gives a job all the speed it can have on these servers when empty."""
        want = self.wants[number]
        if want.table is None:
            return self.fair
        for point in by_speed(want.table):
            if self._could_hold(point.cpus, point.mem_gb) >= want.gpus:
                return point.cpus, point.mem_gb
        return self.fair

    def useful_points(self, number: int) -> list[ServerPoint]:
        """Useful points at which a job is no slower than at the share in proportion."""
        fair = ServerPoint(*self.fair, self.speed(number, *self.fair))
        table = self.wants[number].table
        if table is None:
            return [fair]
        better = [p for p in useful(table) if p.speed >= fair.speed - EPS]
        return [*better, fair]

    # ---- places

    def place(self, number: int, cpus: float, mem_gb: float) -> Parts | None:
        """Find so much for each GPU of a job: where it is, on one server, on several."""
        want = self.wants[number]
        if number in self._pinned:
            fits = all(self._room(s, cpus, mem_gb) >= count for s, count in want.at)
            return want.at if fits else None
        if want.at and all(min(self._room(s, cpus, mem_gb), self.gpus[s]) >= c for s, c in want.at):
            return want.at
        room = {s: min(self._room(s, cpus, mem_gb), self.gpus[s]) for s in range(len(self.servers))}
        return self._choose(room, want.gpus)

    def spots(self, number: int) -> Parts | None:
        """Find GPUs for a job, whatever is left of the hosts."""
        at = self.wants[number].at
        if number in self._pinned or (at and all(self.gpus[s] >= count for s, count in at)):
            return at
        return self._choose(dict(enumerate(self.gpus)), self.wants[number].gpus)

    def grant(self, number: int, parts: Parts, cpus: float, mem_gb: float) -> None:
        """Give a job its place and its part of the hosts, instead of what it was given."""
        if number in self.grants:
            self.revoke(number)
        elif number in self._pinned:
            self.offer_gpus(number)
        self.grants[number] = ServerGrant(parts, cpus, mem_gb)
        self._move_gpus(parts, -1)
        self._move_host(self.grants[number], -1)

    def revoke(self, number: int) -> None:
        """Take back what a job was given."""
        grant = self.grants.pop(number)
        self._move_gpus(grant.parts, 1)
        self._move_host(grant, 1)

    def offer_gpus(self, number: int) -> None:
        """Let others have the GPUs that a job runs on."""
        if number in self._pinned:
            self._pinned.remove(number)
            self._move_gpus(self.wants[number].at, 1)

    def overdrawn(self) -> Iterator[int]:
        """Servers that promised more cores or memory than they have."""
        for server in range(len(self.servers)):
            if self.cpus[server] < -EPS or self.mem_gb[server] < -EPS:
                yield server

    # ---- inside

    def _room(self, server: int, cpus: float, mem_gb: float) -> int:
        """GPUs of a server for which so much is left."""
        left = SynergyServer(self.servers[server].gpus, self.cpus[server], self.mem_gb[server])
        return _times(left, cpus, mem_gb)

    def _could_hold(self, cpus: float, mem_gb: float) -> int:
        return sum(_times(server, cpus, mem_gb) for server in self.servers)

    def _choose(self, room: dict[int, int], gpus: int) -> Parts | None:
        """The server with the fewest free GPUs that has room, else several, the roomiest first."""
        whole = [s for s, count in room.items() if count >= gpus]
        if whole:
            return ((min(whole, key=lambda s: (self.gpus[s], s)), gpus),)
        parts: list[tuple[int, int]] = []
        for server in sorted(room, key=lambda s: (-room[s], s)):
            taken = min(room[server], gpus)
            if taken > 0:
                parts.append((server, taken))
                gpus -= taken
        return None if gpus else tuple(sorted(parts))

    def _move_gpus(self, parts: Parts, sign: int) -> None:
        for server, count in parts:
            self.gpus[server] += sign * count

    def _move_host(self, grant: ServerGrant, sign: int) -> None:
        for server, count in grant.parts:
            self.cpus[server] += sign * count * grant.cpus
            self.mem_gb[server] += sign * count * grant.mem_gb


def _times(left: SynergyServer, cpus: float, mem_gb: float) -> int:
    """GPUs for which a server has so much; a machine of which no host is known has it for all."""
    times = float(left.gpus)
    if cpus > 0.0:
        times = min(times, left.cpus / cpus)
    if mem_gb > 0.0:
        times = min(times, left.mem_gb / mem_gb)
    return max(int(times + EPS), 0)


@lru_cache(maxsize=1024)
def useful(table: Sensitivity) -> tuple[ServerPoint, ...]:
    """Points with whole cores that no other point beats: fewest cores first."""
    first, last = table.cpus[0], table.cpus[-1]
    cores = sorted({*table.cpus, *(float(c) for c in range(ceil(first), int(last) + 1))})
    every = [ServerPoint(c, m, table.at(c, m)) for c, m in product(cores, table.mem_gb)]
    kept: list[ServerPoint] = []
    for point in every:
        if not any(p.speed >= point.speed - 1e-12 and p.mem_gb <= point.mem_gb for p in kept):
            kept.append(point)
    return tuple(kept)


@lru_cache(maxsize=1024)
def by_speed(table: Sensitivity) -> tuple[ServerPoint, ...]:
    """Return the useful points, fastest first."""
    return tuple(sorted(useful(table), key=lambda p: -p.speed))
