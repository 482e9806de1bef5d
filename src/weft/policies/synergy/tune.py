"""How a round's jobs get their part of the hosts: in proportion, GREEDY, TUNE, and filling up.

Section 4 of Mohan et al. (OSDI 2022), but for `fill`, which is ours: TUNE knows two points a job,
all it wants or the share in proportion; what it leaves goes to whoever makes most of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.policies.synergy.servers import EPS, Grant, Point, Rack


def proportional(rack: Rack) -> None:
    """Everybody gets cores and memory in proportion to GPUs."""
    for number in range(len(rack.wants)):
        _grant(rack, number, *rack.fair)


def greedy(rack: Rack) -> None:
    """Everybody gets all it wants, in order, or nothing: GPUs may stay idle."""
    for number in range(len(rack.wants)):
        wanted = rack.demand(number)
        if not _grant(rack, number, *wanted):
            rack.unpin(number)
            _grant(rack, number, *wanted)


def tune(rack: Rack) -> None:
    """All it wants, else its share in proportion; who has more gives way for that.

    Large gangs come first: they find it hardest to fit.
    """
    for number in sorted(range(len(rack.wants)), key=lambda n: -rack.wants[n].gpus):
        wanted = rack.demand(number)
        if _grant(rack, number, *wanted):
            continue
        if _exceeds(wanted, rack.fair):
            wanted = rack.fair
            if _grant(rack, number, *wanted):
                continue
        squeeze_in(rack, number, wanted)


def squeeze_in(rack: Rack, number: int, wanted: tuple[float, float]) -> None:
    """Grant a job its GPUs and at most its share; jobs with more than theirs go back to it."""
    parts = rack.spots(number)
    if parts is None:
        return
    rack.grant(number, parts, *wanted)
    while (server := next(rack.overdrawn(), None)) is not None:
        _revert(rack, _first_to_give(rack, server))


def fill(rack: Rack) -> None:
    """Hand out the cores and memory of every server anew, by what the next bit of it adds.

    Everybody starts from the least that is no slower than its share in proportion. Jobs on
    several servers keep what they have. Never worse than what was there.
    """
    for server in range(len(rack.servers)):
        here = [n for n, grant in rack.grants.items() if grant.parts[0][0] == server]
        alone = [n for n in here if len(rack.grants[n].parts) == 1]
        before = {n: rack.grants[n] for n in alone}
        was = sum(rack.speed(n, g.cpus, g.mem_gb) for n, g in before.items())
        if _pour(rack, server, alone) < was - EPS:
            for number, grant in before.items():
                rack.grant(number, grant.parts, grant.cpus, grant.mem_gb)


def _pour(rack: Rack, server: int, numbers: Iterable[int]) -> float:
    """Sum of speeds once a server is poured out over its jobs."""
    standing: dict[int, Point] = {}
    choices = {number: rack.choices(number) for number in numbers}
    for number, points in choices.items():
        standing[number] = min(points, key=lambda p: _cost(rack, p))
        _put(rack, number, standing[number])
    while True:
        best, gain = None, 0.0
        for number, points in choices.items():
            now, gpus = standing[number], rack.wants[number].gpus
            cores = now.cpus + rack.cpus[server] / gpus + EPS
            memory = now.mem_gb + rack.mem_gb[server] / gpus + EPS
            for point in points:
                if point.speed > now.speed + EPS and point.cpus <= cores and point.mem_gb <= memory:
                    price = gpus * max(_cost(rack, point) - _cost(rack, now), EPS)
                    if (point.speed - now.speed) / price > gain:
                        best, gain = (number, point), (point.speed - now.speed) / price
        if best is None:
            return sum(point.speed for point in standing.values())
        standing[best[0]] = best[1]
        _put(rack, *best)


def _put(rack: Rack, number: int, point: Point) -> None:
    rack.grant(number, rack.grants[number].parts, point.cpus, point.mem_gb)


def _cost(rack: Rack, point: Point) -> float:
    """Cores and memory in units of the share in proportion."""
    return point.cpus / max(rack.fair[0], EPS) + point.mem_gb / max(rack.fair[1], EPS)


def _grant(rack: Rack, number: int, cpus: float, mem_gb: float) -> bool:
    parts = rack.place(number, cpus, mem_gb)
    if parts is None:
        return False
    rack.grant(number, parts, cpus, mem_gb)
    return True


def _exceeds(wanted: tuple[float, float], fair: tuple[float, float]) -> bool:
    return wanted[0] > fair[0] + EPS or wanted[1] > fair[1] + EPS


def _first_to_give(rack: Rack, server: int) -> int:
    """Of the jobs with too much of what a server lacks: on few servers, then the richest."""
    short = rack.cpus[server] < -EPS, rack.mem_gb[server] < -EPS

    def useful(grant: Grant) -> bool:
        over = grant.cpus > rack.fair[0] + EPS, grant.mem_gb > rack.fair[1] + EPS
        return (short[0] and over[0]) or (short[1] and over[1])

    givers = [
        (len(grant.parts), -grant.cpus, -grant.mem_gb, number)
        for number, grant in rack.grants.items()
        if any(s == server for s, _ in grant.parts) and useful(grant)
    ]
    return min(givers)[-1]


def _revert(rack: Rack, number: int) -> None:
    """Back to the share in proportion, or to less of it where that is as fast."""
    grant, (cpus, mem_gb) = rack.grants[number], rack.fair
    less = min(grant.cpus, cpus), min(grant.mem_gb, mem_gb)
    if rack.speed(number, *less) >= rack.speed(number, cpus, mem_gb):
        cpus, mem_gb = less
    rack.grant(number, grant.parts, cpus, mem_gb)
