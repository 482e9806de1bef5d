"""Synergy: CPU cores and host memory by how much jobs gain from them, instead of by their GPUs.

Paper       Mohan et al., "Looking Beyond GPUs for DNN Scheduling on Multi-Tenant Clusters",
            OSDI 2022.
Objective   more progress from the same GPUs, and so shorter completion times under any order:
            jobs that need few cores and little memory leave them to jobs that need many.
Needs       what cores and memory do for a job, by the model it trains; with `order=srtf` or
            `ftf` an estimate of remaining times.
Controls    which jobs run, on which servers, with how many CPU cores and how much memory.
Cost        O(n log n) for the order of n active jobs; then for r jobs on s servers O(r s) by
            TUNE, an integer program and a linear one of r s variables by OPT.
Deviations  a job that keeps running keeps its GPUs, and only its host part is set again each round,
            in place; the authors place every job again, as `stay=false` does. What a job wants is
            read from its table: the least that gives it all its speed. `fill` is ours. OPT never
            lets host parts overlap, as the authors' code does for jobs left in fractions. Jobs of
            unknown models get their share in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, JobId, Sharing, Slice
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Heterogeneity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.frozen import frozen
from weft.pieces.order.keys import lateness
from weft.solve.linear_program import NoSolution, Sparse, maximise
from weft_papers.synergy.servers import (
    EPS,
    Allotment,
    Parts,
    RoundJob,
    ServerGrant,
    ServerPoint,
    SynergyServer,
)
from weft_papers.synergy.tune import greedy, proportional, redistribute, squeeze_in, tune

# ---- OPT: the best host parts on one large server, then a placement of them on the real ones
#
# The two programs of Mohan et al. (OSDI 2022). The first is a bound on what any mechanism can
# do; jobs that are alike share their variables. A corner of the second leaves few jobs in
# fractions; these are placed again with at most their share in proportion.


STAY = 1.0  # worth of staying on a server, where the placement is free to choose


def solve_optimal(allotment: Allotment) -> None:
    """Grant every job its part of the best plan, as far as it can be placed."""
    points = super_server(allotment)
    placed = _place(allotment, points)
    for number in points:
        allotment.offer_gpus(number)
    for number, parts in placed.items():
        allotment.grant(number, parts, points[number].cpus, points[number].mem_gb)
    rest = [n for n in points if n not in placed]
    for number in sorted(rest, key=lambda n: -allotment.wants[n].gpus):
        point = points[number]
        least = min(point.cpus, allotment.fair[0]), min(point.mem_gb, allotment.fair[1])
        slower = allotment.speed(number, *least) < allotment.speed(number, *allotment.fair)
        squeeze_in(allotment, number, allotment.fair if slower else least)


def super_server(allotment: Allotment) -> dict[int, ServerPoint]:
    """The points with the greatest sum of speeds on one large server; no job below its share."""
    alike: dict[tuple[object, int], list[int]] = {}
    for number, want in enumerate(allotment.wants):
        alike.setdefault((want.table, want.gpus), []).append(number)
    groups = list(alike.values())
    columns = [
        (g, point) for g, group in enumerate(groups) for point in allotment.useful_points(group[0])
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
    points: dict[int, ServerPoint] = {}
    for (g, point), count in zip(columns, chosen, strict=True):
        for _ in range(count):
            points[left[g].pop(0)] = point
    return points


def _place(allotment: Allotment, points: Mapping[int, ServerPoint]) -> dict[int, Parts]:
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
    points: Sequence[ServerPoint],
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


# ---- Synergy


MECHANISMS = {"proportional": proportional, "greedy": greedy, "tune": tune, "opt": solve_optimal}
WHERE = classify(
    Objective.COMPLETION_TIME | Objective.THROUGHPUT,
    NeededKnowledge.MODELS | NeededKnowledge.PROFILES,
    Preemption.STOPS,
    Heterogeneity.HOSTS,
)


@frozen
class Synergy:
    """Order jobs as usual, then divide the hosts by sensitivity.

    `order` decides which job comes first; `mechanism` how cores and memory are divided; `fill`
    gives the rest to the jobs that gain most. With `stay` a job that keeps running keeps its GPUs;
    without it every job is placed again. `round` is the length of a round in seconds.
    """

    order: Literal["las", "fifo", "srtf", "ftf"] = "las"
    mechanism: Literal["tune", "greedy", "proportional", "opt"] = "tune"
    fill: bool = False
    stay: bool = True
    round: float = 300.0

    @property
    def about(self) -> About:
        """Two orders ask for remaining times; GREEDY passes over jobs that want too much."""
        known = self.order in ("srtf", "ftf")
        return About(
            "synergy",
            "Mohan et al. 2022",
            needs=Needs.MODEL | (Needs.REMAINING if known else Needs.NOTHING),
            controls=Controls.HOST,
            every=self.round,
            starves="jobs that want much of a host" if self.mechanism == "greedy" else "",
            taxonomy=WHERE,
        )

    def __post_init__(self) -> None:
        if self.round <= 0:
            raise InvalidConfig(f"synergy: round={self.round:g} must be above 0 seconds")

    def decide(self, view: View) -> Plan:
        """Order, admit by GPUs alone, share out the hosts of every kind."""
        wanted: dict[JobId, Allocation] = {}
        for kind, rows in _admit(view, self._rank(view)).items():
            if rows:
                floor = _ServerDevices(view, kind, rows, stay=self.stay)
                MECHANISMS[self.mechanism](floor.allotment)
                if self.fill:
                    redistribute(floor.allotment)
                wanted |= floor.allocations()
        return Plan.target(view, wanted)

    def _rank(self, view: View) -> Rows:
        if self.order == "fifo":
            return np.arange(len(view.table))
        if self.order == "las":
            return view.ranked(view.service())
        left = view.remaining() / self._fastest(view)
        if self.order == "srtf":
            return view.ranked(left)
        return view.ranked(-lateness(view, left))

    def _fastest(self, view: View) -> Floats:
        """The speed that jobs have where they get all they want."""
        sharing = view.sharing()
        tables = [sharing.host(job) for job in view.table.jobs]
        if self.mechanism == "proportional":
            return np.ones(len(tables))
        return np.array([1.0 if t is None else max(map(max, t.speeds)) for t in tables])


def _admit(view: View, order: Rows) -> dict[str, list[int]]:
    """The first of the order whose GPUs fit together, by kind; a running job stays where it can.

    Jobs that may not be stopped come first.
    """
    cluster, table = view.cluster, view.table
    room = dict(zip(cluster.kinds, view.free.idle_by_kind(), strict=True))
    for on in table.allocations:
        if on is not None:
            room[cluster.kind_of(on)] += on.gpus
    admitted: dict[str, list[int]] = {kind: [] for kind in cluster.kinds}
    firm = view.running() & ~view.preemptible()
    rows = [*np.flatnonzero(firm).tolist(), *(int(row) for row in order if not firm[row])]
    for row in rows:
        on, demand = table.allocations[row], table.jobs[row].demand
        kinds = demand.kinds or cluster.kinds
        if on is not None:
            own = cluster.kind_of(on)
            kinds = (own, *(k for k in kinds if k != own)) if not firm[row] else (own,)
        for kind in kinds:
            if demand.gpus <= room.get(kind, 0):
                room[kind] -= demand.gpus
                admitted[kind].append(row)
                break
        if not any(room.values()):
            break
    return admitted


class _ServerDevices:
    """The servers of one kind, and which of their devices are whose."""

    def __init__(self, view: View, kind: str, rows: list[int], *, stay: bool) -> None:
        self._view, self._rows = view, rows
        self._nodes = [i for i, node in enumerate(view.cluster.nodes) if node.kind == kind]
        self._at = {view.cluster.nodes[node].id: s for s, node in enumerate(self._nodes)}
        for on in view.table.allocations:
            if on is not None and on.slices[0].node in self._at:
                view.free.give(on)  # the scheduler takes this back after the decision
        # A job that goes on keeps its devices, so the others choose among the rest.
        self._devices = [_idle(view, node) for node in self._nodes]
        servers = [
            SynergyServer(len(devices), *view.free.host(node))
            for node, devices in zip(self._nodes, self._devices, strict=True)
        ]
        self._places = [s for s, server in enumerate(servers) if server.gpus]
        number = {s: i for i, s in enumerate(self._places)}
        sharing = view.sharing()
        wants = []
        for row in rows:
            on, job = self._held(row), view.job(row)
            keeps = on is not None and (stay or not job.stoppable)
            parts = tuple((number[s], c) for s, c in self._parts(on)) if keeps and on else ()
            wants.append(RoundJob(job.demand.gpus, sharing.host(job), parts))
        self.allotment = Allotment([servers[s] for s in self._places], wants)

    def allocations(self) -> dict[JobId, Allocation]:
        placed: dict[JobId, Allocation] = {}
        moved = []
        for number, grant in sorted(self.allotment.grants.items()):
            row = self._rows[number]
            on = self._held(row)
            if on is not None and self._parts(on) == self._real(grant.parts):
                for part in on.slices:
                    devices = self._devices[self._at[part.node]]
                    self._devices[self._at[part.node]] = [d for d in devices if d not in part.gpus]
                slices = tuple(_host(part, grant) for part in on.slices)
                placed[self._view.job(row).id] = replace(on, slices=slices)
            else:
                moved.append((row, grant))
        for row, grant in moved:
            placed[self._view.job(row).id] = self._place(row, grant)
        return placed

    def _held(self, row: int) -> Allocation | None:
        """Return what a row holds here; None where it comes from another kind."""
        on = self._view.allocation(row)
        return on if on is not None and on.slices[0].node in self._at else None

    def _place(self, row: int, grant: ServerGrant) -> Allocation:
        slices = []
        for server, count in grant.parts:
            place = self._places[server]
            taken, left = self._devices[place][:count], self._devices[place][count:]
            self._devices[place] = left
            node = self._view.cluster.nodes[self._nodes[place]].id
            slices.append(_host(Slice(node, tuple(taken)), grant))
        return Allocation(tuple(slices), Sharing(share=self._view.job(row).demand.share))

    def _real(self, parts: Parts) -> Parts:
        """Number servers as they stand on this floor."""
        return tuple((self._places[server], count) for server, count in parts)

    def _parts(self, on: Allocation) -> Parts:
        return tuple(sorted((self._at[part.node], len(part.gpus)) for part in on.slices))


def _idle(view: View, node: int) -> list[int]:
    return list(view.free.slice(node, view.free.on(node)).gpus)


def _host(part: Slice, grant: ServerGrant) -> Slice:
    count = len(part.gpus)
    return replace(part, cpus=count * grant.cpus, mem_gb=count * grant.mem_gb)
