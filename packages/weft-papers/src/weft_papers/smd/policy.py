"""SMD: choose the jobs, and their workers and servers, that are worth most together.

Paper       Yu et al., "A sum-of-ratios multi-dimensional-knapsack decomposition for DNN resource
            scheduling", INFOCOM 2021.
Objective   the sum of what jobs are worth at their completion, each a sigmoid of its time.
Needs       an estimate of remaining time for jobs without servers; what jobs declare about their
            layers, tasks, limits and worth (see docs/explanation/losses-and-utilities.md).
Controls    which jobs are admitted, how many workers and servers each keeps to its end, and where.
Cost        O(jobs x rungs x log(range) / eps) for sizes, a linear program of jobs x rungs
            variables and at most `budget` smaller ones for the admission.
Deviations  the full text was not available: formulas are reconstructed from the abstract. Up to 60
            sizes are chosen among to the optimum, more by the approximation. Sizes are also offered
            at halved caps, so that the admission chooses among several per job. An allocation has
            no servers of its own: they live in the host parts of its slices, so every node with a
            server has a worker, and links are counted by the policy alone. A job that cannot be
            packed takes a smaller size or waits. A job without servers is assumed to speed up
            linearly; a job without a worth may end at any time. Among jobs with the same worth per
            room, the earlier is served first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import About, Controls, Needs, sizes_in_rounds
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Elasticity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.formulas.training.tasks import (
    RESOURCES,
    Ratios,
    SigmoidUtility,
    Tasks,
    tasks_of,
    utility_of,
)
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft_papers.optimus.tasks import NodeRemainder, place_evenly, shrink
from weft_papers.smd.knapsack import BUDGET, KnapsackItems, choose
from weft_papers.smd.sum_of_ratios import Inner, by_grid, by_scan

WHERE = classify(
    Objective.QUALITY,
    NeededKnowledge.DURATIONS | NeededKnowledge.WORTH,
    Preemption.NEVER,
    Elasticity.GPUS | Elasticity.SERVERS,
)


@frozen
class Smd:
    """Sizes by sums of ratios, admission by knapsack, once per `interval`; no job is resized.

    `eps` is how far a size may be from the best, `exact` scans all sizes instead. `rungs` are the
    caps at which a job offers a size, each half of the one before. `fixed` and `budget` are how
    many jobs the knapsack fixes at a time and how often it tries. `node_gbps` is the link of a
    node. With `spare` admitted jobs get faster sizes if no job is left waiting.
    """

    interval: float = 60.0
    eps: float = 0.1
    exact: bool = False
    rungs: int = 4
    fixed: int = 1
    budget: int = BUDGET
    node_gbps: float = 25.0
    spare: bool = True

    @property
    def about(self) -> About:
        waits = "other jobs are worth more for the GPUs they take"
        needs, also = Needs.REMAINING, Controls.HOST
        return sizes_in_rounds(
            "smd", "Yu et al. 2021", self.interval, WHERE, needs=needs, also=also, starves=waits
        )

    def decide(self, view: View) -> Plan:
        if not view.cluster.nodes or not view.table.waiting:
            return Plan()
        room = NodeRemainder(view, self.node_gbps)
        offered = offers_of(view, SizeSearch(self.rungs, self.eps, self.exact, self.node_gbps))
        if not offered.sizes:
            return Plan()
        left = np.concatenate([room.of(kind) for kind in view.cluster.kinds])
        # Parts of shared devices are not whole free ones, but count for jobs that ask for parts.
        left[:: room.left.shape[1]] += _parts(view)
        chosen = choose(offered.offers, left, fixed=self.fixed, budget=self.budget)
        if self.spare and len(chosen) == len(np.unique(offered.offers.owner)):
            chosen = _widen(offered, chosen, left)
        return Plan(_place_offers(view, offered, chosen, left, room))


def _widen(offered: JobOffers, chosen: list[int], left: Floats) -> list[int]:
    """Give chosen jobs faster sizes, worth no less, as far as there is unused room.

    Many sizes are worth nearly the same long before a job's target: the knapsack takes the
    smallest, also where the rest would lie idle.
    """
    offers, seconds = offered.offers, offered.seconds
    left = left - offers.need[chosen].sum(axis=0)
    widened = []
    for i in sorted(chosen, key=lambda i: -seconds[i]):
        room = left + offers.need[i]
        faster = (offers.owner == offers.owner[i]) & (seconds < seconds[i])
        faster &= (offers.worth >= offers.worth[i]) & (offers.need <= room + 1e-9).all(axis=1)
        at = np.flatnonzero(faster)
        best = int(at[seconds[at].argmin()]) if len(at) else i
        left = room - offers.need[best]
        widened.append(best)
    return widened


def _place_offers(
    view: View, offered: JobOffers, chosen: list[int], left: Floats, room: NodeRemainder
) -> dict[JobId, Allocation | None]:
    """Places for the chosen, the most worth for its room first; then for jobs that still fit."""
    changes: dict[JobId, Allocation | None] = {}
    offers = offered.offers
    parts = np.divide(offers.need, left, out=np.zeros(offers.need.shape), where=left > 0.0)
    density = offers.worth / np.maximum(parts.sum(axis=1), 1e-9)
    first = np.zeros(len(offers), dtype=bool)
    first[chosen] = True
    for i in np.lexsort((-density, ~first)).tolist():
        size = offered.sizes[i]
        job = view.job(size.row)
        if job.id in changes or (offers.need[i] > left + 1e-6).any():
            continue
        place = _place(view, size, room)
        if place is not None:
            room.take(job, place)
            changes[job.id] = place
            left = left - offers.need[i]
    if not changes and not view.running().any():
        changes = _something(view, offered, density, room)
    return changes


def _something(
    view: View, offered: JobOffers, density: Floats, room: NodeRemainder
) -> dict[JobId, Allocation | None]:
    """On an idle cluster that holds no whole size of any job: what fits of the best."""
    for i in np.argsort(-density, kind="stable").tolist():
        size = offered.sizes[i]
        if size.tasks is not None:
            place = shrink(size.tasks, size.workers, size.servers, room, size.kind)
            if place is not None and place.gpus >= view.job(size.row).demand.min:
                return {view.job(size.row).id: place}
    return {}


def _place(view: View, size: RowSize, room: NodeRemainder) -> Allocation | None:
    if size.tasks is not None:
        return place_evenly(size.tasks, size.workers, size.servers, room, size.kind)
    job = view.job(size.row)
    demand = replace(job.demand, gpus=size.workers, kinds=(size.kind,))
    place = fewest_nodes(replace(job, demand=demand), view.free)
    return place if place is not None and view.free.fits(place) else None


def _parts(view: View) -> Floats:
    """Return, for each kind, the parts of devices that are left beside others' parts."""
    parts = []
    for kind in view.cluster.kinds:
        shared = view.free.with_room(kind, 0.0)
        parts.append(float(len(shared)))
    return np.array(parts)


# ---- What waiting jobs offer: sizes, each with what it takes and what the job is then worth
#
# Jobs of workers and servers have the best size under each of a ladder of caps: all that the
# user allows, half of it, a quarter, and so on. Other jobs have sizes between their least and
# most.


ANY_TIME = SigmoidUtility(1.0, 0.0, 0.0)  # of a job that does not say what it is worth


class RowSize(NamedTuple):
    """A size of a row; `tasks` None has no servers."""

    row: int
    kind: str
    workers: int
    servers: int
    tasks: Tasks | None


class OpenCapacity(NamedTuple):
    """A waiting job of workers and servers."""

    row: int
    tasks: Tasks
    ratios: Ratios


@frozen
class SizeSearch:
    """Options of the search for sizes: `rungs` caps, each half of the one above; grid or scan.

    `node_gbps` is the link of a node.
    """

    rungs: int
    eps: float
    exact: bool
    node_gbps: float


class JobOffers(NamedTuple):
    """Sizes, the offers they make, and how long each takes; each kind's resources are apart."""

    sizes: list[RowSize]
    offers: KnapsackItems
    seconds: Floats


def offers_of(view: View, ladder: SizeSearch) -> JobOffers:
    """Everything that waiting jobs offer."""
    sizes: list[RowSize] = []
    seconds: list[float] = []
    served, plain = _waiting(view)
    for size, took in (*_served(view, served, ladder), *_plain(view, plain, ladder)):
        sizes.append(size)
        seconds.append(took)
    worth = _worth(view, sizes, np.array(seconds))
    kinds = {kind: i for i, kind in enumerate(view.cluster.kinds)}
    need = np.zeros((len(sizes), len(kinds), len(RESOURCES)))
    for i, size in enumerate(sizes):
        need[i, kinds[size.kind]] = _need(view, size)
    owner = np.array([size.row for size in sizes], dtype=np.intp)
    return JobOffers(
        sizes,
        KnapsackItems(owner, worth, need.reshape(len(sizes), len(kinds) * len(RESOURCES))),
        np.array(seconds),
    )


def _waiting(view: View) -> tuple[list[OpenCapacity], list[int]]:
    """Rows that hold nothing, those with servers apart."""
    served: list[OpenCapacity] = []
    plain: list[int] = []
    for row in np.flatnonzero(view.waiting()).tolist():
        job = view.job(row)
        tasks = tasks_of(job)
        ratios = view.training.ratios(job) if view.training is not None and tasks else None
        if tasks is None or ratios is None:
            plain.append(row)
        else:
            served.append(OpenCapacity(row, tasks, Ratios(*ratios)))
    return served, plain


def _served(
    view: View, jobs: list[OpenCapacity], ladder: SizeSearch
) -> list[tuple[RowSize, float]]:
    if not jobs:
        return []
    total = np.max([_capacity(view, kind) for kind in view.cluster.kinds], axis=0)
    worker = np.array([job.tasks.worker.vector for job in jobs])
    server = np.array([job.tasks.server.vector for job in jobs])
    # Links are no limit of the whole cluster here: the room of the interval has them.
    caps = np.minimum([job.tasks.caps for job in jobs], np.append(total, np.inf))
    demands = [view.job(job.row).demand for job in jobs]
    least = np.array([float(demand.min) for demand in demands])
    beside = {kind: _beside(view, kind, jobs, ladder.node_gbps) for kind in view.cluster.kinds}
    offers: list[tuple[RowSize, float]] = []
    seen: set[tuple[int, str, int, int]] = set()
    for rung in range(ladder.rungs):
        inner = Inner(
            np.array([job.ratios for job in jobs]),
            worker,
            server,
            np.maximum(caps / 2.0**rung, least[:, None] * worker + server),
            least,
            np.array([float(demand.max) for demand in demands]),
            np.array([float(job.tasks.most_servers) for job in jobs]),
        )
        sized = by_scan(inner) if ladder.exact else by_grid(inner, ladder.eps)
        for i in np.flatnonzero(np.isfinite(sized.seconds)).tolist():
            offered, w = jobs[i], int(sized.workers[i])
            for kind in _kinds(view, offered.row):
                p = min(int(sized.servers[i]), w * int(beside[kind][i]))
                if p >= 1 and (offered.row, kind, w, p) not in seen:
                    seen.add((offered.row, kind, w, p))
                    seconds = offered.ratios.at(w, p) * _left(view, offered)
                    offers.append((RowSize(offered.row, kind, w, p, offered.tasks), seconds))
    return offers


def _beside(view: View, kind: str, jobs: list[OpenCapacity], node_gbps: float) -> Floats:
    """For each job, the most servers that a node of a kind has room for beside one worker."""
    nodes = [node for node in view.cluster.nodes if node.kind == kind]
    room = np.array([[node.gpus, node.cpus, node.mem_gb, node_gbps] for node in nodes]).max(axis=0)
    most = np.full(len(jobs), np.inf)
    for i, job in enumerate(jobs):
        taken = job.tasks.server.vector
        used = taken > 0.0
        most[i] = ((room - job.tasks.worker.vector)[used] / taken[used]).min()
    return np.asarray(np.floor(np.maximum(most, 0.0) + 1e-9))


def _left(view: View, job: OpenCapacity) -> float:
    """The part of its updates that a job still has to make: all, unless it was stopped before."""
    assert view.training is not None
    steps = view.training.steps_left(view.job(job.row))
    return 1.0 if steps is None else min(steps / job.tasks.steps, 1.0)


def _plain(view: View, rows: list[int], ladder: SizeSearch) -> list[tuple[RowSize, float]]:
    """Speed in proportion to GPUs, and an unknown end without an estimate."""
    if not rows:
        return []
    left = view.remaining()
    offers: list[tuple[RowSize, float]] = []
    for row in rows:
        demand = view.job(row).demand
        counts = {max(demand.max >> rung, demand.min) for rung in range(ladder.rungs)}
        for count in sorted(counts, reverse=True):
            seconds = float(left[row]) * demand.gpus / count
            offers += [(RowSize(row, kind, count, 0, None), seconds) for kind in _kinds(view, row)]
    return offers


def _worth(view: View, sizes: list[RowSize], seconds: Floats) -> Floats:
    utilities = {size.row: utility_of(view.job(size.row)) or ANY_TIME for size in sizes}
    worth = np.zeros(len(sizes))
    for i, size in enumerate(sizes):
        job = view.job(size.row)
        took = float(seconds[i]) if np.isfinite(seconds[i]) else 0.0
        worth[i] = float(utilities[size.row].at(took, view.now - job.submitted))
    return worth


def _need(view: View, size: RowSize) -> Floats:
    if size.tasks is not None:
        return size.tasks.need(size.workers, size.servers)
    share = size.workers * view.job(size.row).demand.share
    node = next(node for node in view.cluster.nodes if node.kind == size.kind)
    return np.array([share, share * node.cpus / node.gpus, share * node.mem_gb / node.gpus, 0.0])


def _kinds(view: View, row: int) -> tuple[str, ...]:
    job: Job = view.job(row)
    return acceptable(job, view.free)


def _capacity(view: View, kind: str) -> Floats:
    nodes = [node for node in view.cluster.nodes if node.kind == kind]
    each = np.array([[node.gpus, node.cpus, node.mem_gb] for node in nodes])
    return np.asarray(each.sum(axis=0))
