"""Places that leave the least fragmented: fragmentation gradient descent (Weng et al., ATC 2023).

Among the nodes that a job fits on it goes where the idle GPUs that a typical job could not use grow
least. The typical jobs are those that are here now, running or waiting: the published experiments
know the mix of the whole trace, jobs still to come included. Hosts are divided in proportion to
GPUs, so cores do not run out before them. Gangs too large for a node take the fewest nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from weft.core.model.job import Allocation, Demand, Job, Sharing
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.table import Floats, Rows
from weft.formulas.fragmentation import (
    EPS,
    JobClass,
    classes_on,
    fragments,
    score_change,
    typical_classes,
)
from weft.pieces.place.gangs import Placer, acceptable, fewest_nodes

NO_ROOM = -1


def among_typical(view: View) -> Placer:
    """A placer by the jobs of a view; they are counted when the first one is placed."""

    @cache
    def classes() -> tuple[JobClass, ...]:
        return typical_classes(job.demand for job in view.table.jobs)

    return lambda job, free: place_by_fragments(job, free, classes())


def place_by_fragments(job: Job, free: Capacity, classes: Sequence[JobClass]) -> Allocation | None:
    """The node that it fragments least, the first of equals in the cluster's order."""
    demand = job.demand
    if demand.nodes or (demand.share < 1.0 and demand.gpus > 1):
        return fewest_nodes(job, free)
    best, where, device = NO_ROOM, 0, 0
    for kind in acceptable(job, free):
        for size, nodes in _nodes(free, kind, demand).items():
            left = np.array([_left(free, node, size) for node in nodes])
            scores, devices = score_nodes(left, demand, classes_on(classes, kind, size))
            top = int(scores.argmax())
            if (int(scores[top]), -nodes[top]) > (best, -where):
                best, where, device = int(scores[top]), nodes[top], int(devices[top])
    if best == NO_ROOM:
        return fewest_nodes(job, free) if demand.share == 1.0 else None
    if demand.share == 1.0:
        return Allocation((free.slice(where, demand.gpus),))
    part = free.slice_of(where, 1 << device, demand.share)
    return Allocation((part,), Sharing(share=demand.share))


def score_nodes(
    left: Floats,
    demand: Demand,
    classes: Sequence[JobClass],
    cpus: Floats | None = None,
    taken: float = 0.0,
) -> tuple[Rows, Rows]:
    """A score and a device for each node of one kind, a row of `left` each; -1: it does not fit.

    A job with a part of a GPU tries each device, and the first of the best is its; whole GPUs are
    the first free ones. `cpus` are idle cores, of which it takes so many.
    """
    before = fragments(left, classes, cpus)
    less = None if cpus is None else cpus - taken
    if demand.share == 1.0:
        whole = left >= 1.0 - EPS
        first = whole & (whole.cumsum(axis=1) <= demand.gpus)
        after = fragments(np.where(first, 0.0, left), classes, less)
        fits = whole.sum(axis=1) >= demand.gpus
        return np.where(fits, score_change(before, after), NO_ROOM), np.zeros(len(left), np.intp)
    count, size = left.shape
    tries = np.repeat(left, size, axis=0)
    tries[np.arange(count * size), np.tile(np.arange(size), count)] -= demand.share
    after = fragments(tries.clip(min=0.0), classes, None if less is None else less.repeat(size))
    scores = score_change(before.repeat(size), after).reshape(count, size)
    scores = np.where(left >= demand.share - EPS, scores, NO_ROOM)
    return scores.max(axis=1), scores.argmax(axis=1)


def _nodes(free: Capacity, kind: str, demand: Demand) -> dict[int, list[int]]:
    """Nodes by size; of those alike, without shared devices, only the first."""
    by_gpus: dict[int, list[int]] = defaultdict(list)
    for node in sorted(_differing(free, kind, demand)):
        by_gpus[free.cluster.nodes[node].gpus].append(node)
    return by_gpus


def _differing(free: Capacity, kind: str, demand: Demand) -> Iterator[int]:
    shared = {node for node, _ in free.with_room(kind, 0.0)}
    least = demand.gpus if demand.share == 1.0 else 1
    seen: set[tuple[int, int]] = set()
    if demand.share < 1.0:
        yield from (node for node in shared if not free.on(node))
    for count in range(least, free.cluster.node_size(kind) + 1):
        for node in free.nodes_with(kind, count):
            alike = (free.cluster.nodes[node].gpus, count)
            if node in shared or alike not in seen:
                yield node
            if node not in shared:
                seen.add(alike)


def _left(free: Capacity, node: int, size: int) -> list[float]:
    return [1.0 - free.claimed(node, gpu) for gpu in range(size)]
