"""OPT: the best host parts on one large server, then a placement of them on the real ones.

The two programs of Mohan et al. (OSDI 2022). The first is a bound on what any mechanism can do;
jobs that are alike share their variables. A corner of the second leaves few jobs in fractions;
these are placed again with at most their share in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from weft.policies.synergy.servers import EPS, Allotment, Parts, Point
from weft.policies.synergy.tune import squeeze_in
from weft.solve.linear_program import NoSolution, Sparse, maximise

STAY = 1.0  # worth of staying on a server, where the placement is free to choose


def optimal(allotment: Allotment) -> None:
    """Grant every job its part of the best plan, as far as it can be placed."""
    points = super_server(allotment)
    placed = _place(allotment, points)
    for number in points:
        allotment.unpin(number)
    for number, parts in placed.items():
        allotment.grant(number, parts, points[number].cpus, points[number].mem_gb)
    rest = [n for n in points if n not in placed]
    for number in sorted(rest, key=lambda n: -allotment.wants[n].gpus):
        point = points[number]
        least = min(point.cpus, allotment.fair[0]), min(point.mem_gb, allotment.fair[1])
        slower = allotment.speed(number, *least) < allotment.speed(number, *allotment.fair)
        squeeze_in(allotment, number, allotment.fair if slower else least)


def super_server(allotment: Allotment) -> dict[int, Point]:
    """The points that maximise the sum of speeds, were all servers one; nobody below its share."""
    alike: dict[tuple[object, int], list[int]] = {}
    for number, want in enumerate(allotment.wants):
        alike.setdefault((want.table, want.gpus), []).append(number)
    groups = list(alike.values())
    columns = [
        (g, point) for g, group in enumerate(groups) for point in allotment.choices(group[0])
    ]
    gpus = np.array([allotment.wants[groups[g][0]].gpus for g, _ in columns], dtype=float)
    cost = np.array([point.speed for _, point in columns])
    cores = np.array([point.cpus for _, point in columns]) * gpus
    memory = np.array([point.mem_gb for _, point in columns]) * gpus
    member = np.array([[float(g == of) for of, _ in columns] for g in range(len(groups))])
    # Every job gets exactly one point: at most one each, and at least one each.
    sizes = np.array([len(group) for group in groups], dtype=float)
    matrix = Sparse.of(np.vstack([cores, memory, member, -member]))
    total = [sum(s.cpus for s in allotment.servers), sum(s.mem_gb for s in allotment.servers)]
    limits = np.concatenate([np.array(total) + EPS, sizes, -sizes])
    chosen = np.rint(maximise(cost, matrix, limits, whole=True).x).astype(int)
    left = [list(group) for group in groups]
    points: dict[int, Point] = {}
    for (g, point), count in zip(columns, chosen, strict=True):
        for _ in range(count):
            points[left[g].pop(0)] = point
    return points


def _place(allotment: Allotment, points: Mapping[int, Point]) -> dict[int, Parts]:
    """The jobs that the placement program puts whole on one server, or in whole GPUs on several."""
    numbers, servers = list(points), range(len(allotment.servers))
    pairs = list(product(range(len(numbers)), servers))
    now = {(n, s) for n in numbers for s, _ in allotment.wants[n].at}
    cost = np.array([STAY if (numbers[j], s) in now else 0.0 for j, s in pairs])
    matrix, limits = _program(allotment, [points[n] for n in numbers], numbers, pairs)
    try:
        x = maximise(cost, matrix, limits).x.reshape(len(numbers), len(servers))
    except NoSolution:
        return {}  # the parts do not fit the servers that there are
    placed = {}
    for number, row in zip(numbers, x, strict=True):
        counts = row * allotment.wants[number].gpus
        whole = np.rint(counts)
        if np.abs(counts - whole).max() < EPS:
            placed[number] = tuple((s, int(whole[s])) for s in servers if whole[s])
    return placed


def _program(
    allotment: Allotment,
    points: Sequence[Point],
    numbers: Sequence[int],
    pairs: Sequence[tuple[int, int]],
) -> tuple[Sparse, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Rows: each job placed once, as two limits; GPUs, cores and memory of every server."""
    jobs, count = len(numbers), len(allotment.servers)
    job = np.array([j for j, _ in pairs])
    server = np.array([s for _, s in pairs])
    column = np.arange(len(pairs))
    gpus = np.array([allotment.wants[n].gpus for n in numbers], dtype=float)
    uses = [
        gpus,
        gpus * np.array([p.cpus for p in points]),
        gpus * np.array([p.mem_gb for p in points]),
    ]
    ones = np.ones(len(pairs))
    matrix = Sparse(
        np.concatenate([job, jobs + job, *(2 * jobs + k * count + server for k in range(3))]),
        np.concatenate([column] * 5),
        np.concatenate([ones, -ones, *(use[job] for use in uses)]),
        (2 * jobs + 3 * count, len(pairs)),
    )
    servers = allotment.servers
    room = [s.gpus for s in servers] + [s.cpus for s in servers] + [s.mem_gb for s in servers]
    limits = np.concatenate([np.ones(jobs), -np.ones(jobs), np.array(room, dtype=float)])
    return matrix, limits
