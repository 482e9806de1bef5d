"""Parts of the hosts for a round's jobs: in proportion, GREEDY, TUNE, and filling up.

Section 4 of Mohan et al. (OSDI 2022), but for `fill`, which is ours: TUNE knows two points a job,
all it wants or the share in proportion; what it leaves goes to the jobs that gain most.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft_papers.synergy.servers import EPS, Allotment, ServerGrant, ServerPoint


def proportional(allotment: Allotment) -> None:
    """Each job gets cores and memory in proportion to GPUs."""
    for number in range(len(allotment.wants)):
        _grant(allotment, number, *allotment.fair)


def greedy(allotment: Allotment) -> None:
    """Each job gets all it wants, in order, or nothing: GPUs may stay idle."""
    for number in range(len(allotment.wants)):
        wanted = allotment.demand(number)
        if not _grant(allotment, number, *wanted):
            allotment.offer_gpus(number)
            _grant(allotment, number, *wanted)


def tune(allotment: Allotment) -> None:
    """All it wants, else its share in proportion; jobs with more give way for that.

    Large gangs come first: they find it hardest to fit.
    """
    for number in sorted(range(len(allotment.wants)), key=lambda n: -allotment.wants[n].gpus):
        wanted = allotment.demand(number)
        if _grant(allotment, number, *wanted):
            continue
        if _exceeds(wanted, allotment.fair):
            wanted = allotment.fair
            if _grant(allotment, number, *wanted):
                continue
        squeeze_in(allotment, number, wanted)


def squeeze_in(allotment: Allotment, number: int, wanted: tuple[float, float]) -> None:
    """Grant a job its GPUs and at most its share; jobs with more than theirs go back to it."""
    parts = allotment.spots(number)
    if parts is None:
        return
    allotment.grant(number, parts, *wanted)
    while (server := next(allotment.overdrawn(), None)) is not None:
        _revert(allotment, _first_to_give(allotment, server))


def redistribute(allotment: Allotment) -> None:
    """Hand out the cores and memory of every server again, by what the next bit of it adds.

    Each job starts from the least that is no slower than its share in proportion. Jobs on
    several servers keep what they have. Never worse than what was there.
    """
    for server in range(len(allotment.servers)):
        here = [n for n, grant in allotment.grants.items() if grant.parts[0][0] == server]
        alone = [n for n in here if len(allotment.grants[n].parts) == 1]
        before = {n: allotment.grants[n] for n in alone}
        was = sum(allotment.speed(n, g.cpus, g.mem_gb) for n, g in before.items())
        if _pour(allotment, server, alone) < was - EPS:
            for number, grant in before.items():
                allotment.grant(number, grant.parts, grant.cpus, grant.mem_gb)


def _pour(allotment: Allotment, server: int, numbers: Iterable[int]) -> float:
    """Sum of speeds once a server is poured out over its jobs."""
    standing: dict[int, ServerPoint] = {}
    choices = {number: allotment.useful_points(number) for number in numbers}
    for number, points in choices.items():
        standing[number] = min(points, key=lambda p: _cost(allotment, p))
        _put(allotment, number, standing[number])
    while True:
        best, gain = None, 0.0
        for number, points in choices.items():
            now, gpus = standing[number], allotment.wants[number].gpus
            cores = now.cpus + allotment.cpus[server] / gpus + EPS
            memory = now.mem_gb + allotment.mem_gb[server] / gpus + EPS
            for point in points:
                if point.speed > now.speed + EPS and point.cpus <= cores and point.mem_gb <= memory:
                    price = gpus * max(_cost(allotment, point) - _cost(allotment, now), EPS)
                    if (point.speed - now.speed) / price > gain:
                        best, gain = (number, point), (point.speed - now.speed) / price
        if best is None:
            return sum(point.speed for point in standing.values())
        standing[best[0]] = best[1]
        _put(allotment, *best)


def _put(allotment: Allotment, number: int, point: ServerPoint) -> None:
    allotment.grant(number, allotment.grants[number].parts, point.cpus, point.mem_gb)


def _cost(allotment: Allotment, point: ServerPoint) -> float:
    """Cores and memory in units of the share in proportion."""
    return point.cpus / max(allotment.fair[0], EPS) + point.mem_gb / max(allotment.fair[1], EPS)


def _grant(allotment: Allotment, number: int, cpus: float, mem_gb: float) -> bool:
    parts = allotment.place(number, cpus, mem_gb)
    if parts is None:
        return False
    allotment.grant(number, parts, cpus, mem_gb)
    return True


def _exceeds(wanted: tuple[float, float], fair: tuple[float, float]) -> bool:
    return wanted[0] > fair[0] + EPS or wanted[1] > fair[1] + EPS


def _first_to_give(allotment: Allotment, server: int) -> int:
    """Return the job that gives first what a server lacks: on few servers, then the richest."""
    short = allotment.cpus[server] < -EPS, allotment.mem_gb[server] < -EPS

    def useful(grant: ServerGrant) -> bool:
        over = grant.cpus > allotment.fair[0] + EPS, grant.mem_gb > allotment.fair[1] + EPS
        return (short[0] and over[0]) or (short[1] and over[1])

    givers = [
        (len(grant.parts), -grant.cpus, -grant.mem_gb, number)
        for number, grant in allotment.grants.items()
        if any(s == server for s, _ in grant.parts) and useful(grant)
    ]
    return min(givers)[-1]


def _revert(allotment: Allotment, number: int) -> None:
    """Back to the share in proportion, or to less of it where that is as fast."""
    grant, (cpus, mem_gb) = allotment.grants[number], allotment.fair
    less = min(grant.cpus, cpus), min(grant.mem_gb, mem_gb)
    if allotment.speed(number, *less) >= allotment.speed(number, cpus, mem_gb):
        cpus, mem_gb = less
    allotment.grant(number, grant.parts, cpus, mem_gb)
