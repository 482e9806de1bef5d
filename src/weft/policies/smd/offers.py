"""What waiting jobs offer: sizes, each with what it takes and what the job is then worth.

Jobs of workers and servers have the best size under each of a ladder of caps: all that the user
allows, half of it, a quarter, and so on. Other jobs have sizes between their least and most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.model.job import Job
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.formulas.training.learning import Ratios
from weft.formulas.training.tasks import RESOURCES, Tasks, Utility, tasks_of, utility_of
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable
from weft.solve.knapsack import Offers
from weft.solve.sum_of_ratios import Inner, by_grid, by_scan

ANY_TIME = Utility(1.0, 0.0, 0.0)  # of a job that does not say what it is worth


class Size(NamedTuple):
    """A size of a row; `tasks` None has no servers."""

    row: int
    kind: str
    workers: int
    servers: int
    tasks: Tasks | None


class Open(NamedTuple):
    """A waiting job of workers and servers."""

    row: int
    tasks: Tasks
    ratios: Ratios


@frozen
class Ladder:
    """How sizes are found: `rungs` caps, each half of the one above; by grid or by scan.

    `node_gbps` is the link of a node.
    """

    rungs: int
    eps: float
    exact: bool
    node_gbps: float


class Found(NamedTuple):
    """Sizes, the offers they make, and how long each takes; each kind's resources are apart."""

    sizes: list[Size]
    offers: Offers
    seconds: Floats


def offers_of(view: View, ladder: Ladder) -> Found:
    """Everything that waiting jobs offer."""
    sizes: list[Size] = []
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
    return Found(
        sizes,
        Offers(owner, worth, need.reshape(len(sizes), len(kinds) * len(RESOURCES))),
        np.array(seconds),
    )


def _waiting(view: View) -> tuple[list[Open], list[int]]:
    """Rows that hold nothing, those with servers apart."""
    served: list[Open] = []
    plain: list[int] = []
    for row in np.flatnonzero(view.waiting()).tolist():
        job = view.job(row)
        tasks = tasks_of(job)
        ratios = view.training.ratios(job) if view.training is not None and tasks else None
        if tasks is None or ratios is None:
            plain.append(row)
        else:
            served.append(Open(row, tasks, Ratios(*ratios)))
    return served, plain


def _served(view: View, jobs: list[Open], ladder: Ladder) -> list[tuple[Size, float]]:
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
    offers: list[tuple[Size, float]] = []
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
                    offers.append((Size(offered.row, kind, w, p, offered.tasks), seconds))
    return offers


def _beside(view: View, kind: str, jobs: list[Open], node_gbps: float) -> Floats:
    """For each job, the most servers that a node of a kind has room for beside one worker."""
    nodes = [node for node in view.cluster.nodes if node.kind == kind]
    room = np.array([[node.gpus, node.cpus, node.mem_gb, node_gbps] for node in nodes]).max(axis=0)
    most = np.full(len(jobs), np.inf)
    for i, job in enumerate(jobs):
        taken = job.tasks.server.vector
        used = taken > 0.0
        most[i] = ((room - job.tasks.worker.vector)[used] / taken[used]).min()
    return np.asarray(np.floor(np.maximum(most, 0.0) + 1e-9))


def _left(view: View, job: Open) -> float:
    """The part of its updates that a job still has to make: all, unless it was stopped before."""
    assert view.training is not None
    steps = view.training.steps_left(view.job(job.row))
    return 1.0 if steps is None else min(steps / job.tasks.steps, 1.0)


def _plain(view: View, rows: list[int], ladder: Ladder) -> list[tuple[Size, float]]:
    """Speed in proportion to GPUs, and an unknown end where nobody knows."""
    if not rows:
        return []
    left = view.remaining()
    offers: list[tuple[Size, float]] = []
    for row in rows:
        demand = view.job(row).demand
        counts = {max(demand.max >> rung, demand.min) for rung in range(ladder.rungs)}
        for count in sorted(counts, reverse=True):
            seconds = float(left[row]) * demand.gpus / count
            offers += [(Size(row, kind, count, 0, None), seconds) for kind in _kinds(view, row)]
    return offers


def _worth(view: View, sizes: list[Size], seconds: Floats) -> Floats:
    utilities = {size.row: utility_of(view.job(size.row)) or ANY_TIME for size in sizes}
    worth = np.zeros(len(sizes))
    for i, size in enumerate(sizes):
        job = view.job(size.row)
        took = float(seconds[i]) if np.isfinite(seconds[i]) else 0.0
        worth[i] = float(utilities[size.row].at(took, view.now - job.submitted))
    return worth


def _need(view: View, size: Size) -> Floats:
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
