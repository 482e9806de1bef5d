"""Devices that a waiting job could have first, and when: those that the fewest jobs are on."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

import numpy as np

from weft.core.model.job import Job, NodeId
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.releasing import devices_of
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.wrap.restart_costs import seconds_left

Device = tuple[NodeId, int]
DeviceSeconds = dict[Device, float]
NodeChoice = tuple[int, float, NodeId, list[int]]


@frozen
class BackfillReservation:
    """Devices for the job of a row; a job that ends in `within_s` seconds is not in its way."""

    row: int
    devices: frozenset[Device]
    within_s: float


def reserve_for(
    view: View, row: int, busy_s: DeviceSeconds, *, trusted: bool = True
) -> BackfillReservation | None:
    """The devices of one kind that a row could have first; None where no kind has enough.

    Unless times are `trusted`, no job is known to leave them early enough.
    """
    choices = [
        (_cost(nodes), kind)
        for kind in view.job(row).demand.kinds or view.cluster.kinds
        if (nodes := _choose_nodes(view.job(row), kind, view, busy_s))
    ]
    if not choices:
        return None
    nodes = _choose_nodes(view.job(row), min(choices)[1], view, busy_s)
    devices = frozenset((name, gpu) for *_, name, gpus in nodes for gpu in gpus)
    within_s = max(choice[1] for choice in nodes) if trusted else 0.0
    return BackfillReservation(row, devices, within_s)


def _cost(nodes: list[NodeChoice]) -> tuple[int, float]:
    """Return how many devices are held, and for how long."""
    return sum(choice[0] for choice in nodes), max(choice[1] for choice in nodes)


def _choose_nodes(job: Job, kind: str, view: View, busy_s: DeviceSeconds) -> list[NodeChoice]:
    """The first nodes of a kind that are enough for a job; none where all are too few."""
    nodes, demand = sorted(_nodes_of(job, kind, view, busy_s)), job.demand
    largest = max((len(gpus) for *_, gpus in nodes), default=1)
    chosen = nodes[: max(ceil(demand.min / largest), demand.nodes)]
    return chosen if sum(len(gpus) for *_, gpus in chosen) >= max(demand.min, 1) else []


def _nodes_of(job: Job, kind: str, view: View, busy_s: DeviceSeconds) -> Iterator[NodeChoice]:
    """Nodes of a kind: devices for a job that are held, seconds until they are free, which."""
    for node in view.cluster.nodes:
        if node.kind != kind or not node.gpus:
            continue
        ends = sorted((busy_s.get((node.id, gpu), 0.0), gpu) for gpu in range(node.gpus))
        ends = ends[: min(job.demand.min, node.gpus)]
        if ends[-1][0] < inf:
            held = sum(end > 0.0 for end, _ in ends)
            yield held, ends[-1][0], node.id, [gpu for _, gpu in ends]


def find_busy_seconds(view: View, p: float) -> DeviceSeconds:
    """Of devices that are held: 0 where all on it can be stopped, inf where a job is not seen."""
    busy_s: DeviceSeconds = {}
    for i, node in enumerate(view.cluster.nodes):
        idle = view.free.idle_mask(i)
        busy_s |= {(node.id, gpu): inf for gpu in range(node.gpus) if not idle >> gpu & 1}
    firm = ~view.preemptible()
    left = np.where(_tells(view), seconds_left(view), quantile_left(view, view.running() & firm, p))
    for row, on in enumerate(view.table.allocations):
        if on is not None:
            busy_s |= dict.fromkeys(devices_of(on), float(left[row]) if firm[row] else 0.0)
    return busy_s


def quantile_left(view: View, rows: Bools, p: float) -> Floats:
    """A quantile of the predicted seconds left of some rows; inf of others and where unknown."""
    left = np.full(len(view.table), inf)
    if view.knowledge.predictor is not None and rows.any():
        part = view.table.pick(rows)
        known = np.isfinite(view.knowledge.predictor.remaining(part, view.now))
        predicted = view.knowledge.predictor.quantiles(part, view.now, (p,))[:, 0]
        left[rows] = np.where(known, predicted, inf)
    return left


def _tells(view: View) -> Bools:
    """Rows whose own progress says how much is left, or for which nothing is predicted."""
    work = np.full(len(view.table), np.nan)
    if view.knowledge.pooled is not None and len(view.table):
        work = view.knowledge.pooled.work_left(view.table, view.now)
    predictor = view.knowledge.predictor
    blind = np.ones(len(view.table), dtype=bool)
    if predictor is not None:
        left = predictor.remaining(view.table, view.now)
        blind = ~(np.isfinite(left) & (left > 0.0))
    mask: Bools = np.isfinite(work) | blind
    return mask
