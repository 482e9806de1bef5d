"""Idle GPUs that a typical job cannot use (Weng et al., "Beware of Fragmentation", ATC 2023).

The typical jobs of a workload are classes with a popularity each. A class that does not fit a
node can use none of its idle GPUs; one that fits cannot use those with less left than it asks of
each. Fragmentation is the sum over classes, weighted by popularity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.model.job import Demand
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen

COVERED = 0.95  # part of all jobs that the typical classes make up
EPS = 1e-9


@frozen
class JobClass:
    """Jobs that ask alike: `gpus` devices, `share` of each, `cpus` cores, of some kinds or any."""

    popularity: float
    gpus: int
    share: float = 1.0
    cpus: float = 0.0
    kinds: tuple[str, ...] = ()


def typical_classes(demands: Iterable[Demand]) -> tuple[JobClass, ...]:
    """The most frequent demands until they cover 95 % of the jobs; popularity sums to 1.

    Jobs without GPUs wait for none and are left out; of equally frequent demands the one that
    came first counts first.
    """
    counts = Counter((d.gpus, d.share, d.kinds) for d in demands if d.gpus)
    enough, classes, seen = COVERED * sum(counts.values()), [], 0
    for (gpus, share, kinds), count in sorted(counts.items(), key=lambda counted: -counted[1]):
        if seen >= enough:
            break
        classes.append(JobClass(count, gpus, share, kinds=kinds))
        seen += count
    return tuple(
        replace(job_class, popularity=job_class.popularity / seen) for job_class in classes
    )


def fragmented(left: Sequence[float], cpus: float, kind: str, classes: Iterable[JobClass]) -> float:
    """GPUs of a node that a typical job cannot use: `left` is what is idle of each device.

    `cpus` are its idle cores. A class that asks for no GPU uses none.
    """
    fits = [c if not c.kinds or kind in c.kinds else replace(c, gpus=0) for c in classes]
    return float(fragments(np.array([left], dtype=float), fits, np.array([cpus]))[0])


def fragments(left: Floats, classes: Iterable[JobClass], cpus: Floats | None = None) -> Floats:
    """Return the fragments of each node in `left`, all of one kind; without `cpus`, GPUs alone.

    Kinds are not looked at: a class that may not use the nodes asks for no GPUs.
    """
    idle = left.sum(axis=1)
    lost = np.zeros(len(left))
    for job_class in classes:
        if not job_class.gpus:
            lost += job_class.popularity * idle
            continue
        enough = left >= job_class.share - EPS
        fits = enough.sum(axis=1) >= job_class.gpus
        if cpus is not None:
            fits &= cpus >= job_class.cpus - EPS
        unused = np.where(fits, np.where(enough, 0.0, left).sum(axis=1), idle)
        lost += job_class.popularity * unused
    return lost


def score_change(before: Floats, after: Floats) -> Rows:
    """A score of fragmentation, as the authors have it: 0 to 100, 50 for no change.

    Whole numbers on purpose: what differs by less than about 0.04 GPUs is equal, and the first
    node in a fixed order is taken. With exact or randomly broken ties the cluster fills less.
    """
    gain = np.round(before - after, 9)
    return np.floor(100.0 / (1.0 + np.exp(-gain))).astype(np.intp)


def classes_on(classes: Iterable[JobClass], kind: str, size: int) -> list[JobClass]:
    """The classes as a node of this kind and size sees them: of a larger gang, all of the node."""
    return [
        replace(job_class, gpus=min(job_class.gpus, size), cpus=0.0)
        if not job_class.kinds or kind in job_class.kinds
        else replace(job_class, gpus=0)
        for job_class in classes
    ]


# ---- over a whole run


@dataclass(frozen=True)
class HeldDevices:
    """Devices held by jobs: rows of (node, start, end, how many, share of each, which)."""

    node: Rows
    start: Floats
    end: Floats
    gpus: Floats
    share: Floats
    devices: Sequence[tuple[int, ...]]

    def select_rows(self, rows: Bools) -> HeldDevices:
        """The devices of some rows alone."""
        devices = [self.devices[row] for row in np.flatnonzero(rows).tolist()]
        start, end, gpus, share = (
            self.start[rows],
            self.end[rows],
            self.gpus[rows],
            self.share[rows],
        )
        return HeldDevices(self.node[rows], start, end, gpus, share, devices)


@frozen
class Idle:
    """GPU-seconds that no job held, and how many of them a typical job could not have used."""

    gpu_s: float = 0.0
    fragmented_gpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """The part of idle GPU time that was fragmented."""
        return self.fragmented_gpu_s / self.gpu_s if self.gpu_s > 0.0 else 0.0


def count_idle(
    kinds: Sequence[str],
    sizes: Sequence[int],
    held: HeldDevices,
    span: tuple[float, float],
    classes: Sequence[JobClass],
) -> Idle:
    """Idle GPU time of nodes of these kinds and sizes over `span`; CPUs are not counted.

    A gang larger than a node asks for all of it.
    """
    shared = np.zeros(len(kinds), dtype=bool)
    shared[held.node[held.share < 1.0 - EPS]] = True
    whole = ~shared[held.node]
    pools = list(dict.fromkeys(zip(kinds, sizes, strict=True)))
    pool_of = np.array(
        [pools.index(pool) for pool in zip(kinds, sizes, strict=True)], dtype=np.intp
    )
    idle = lost = 0.0
    undivided = held.select_rows(whole) if shared.any() else held
    seconds = _node_seconds(pool_of, np.array(sizes), undivided, span, ~shared)
    for number, (kind, size) in enumerate(pools):
        fits = classes_on(classes, kind, size)
        for left in range(1, size + 1):
            idle += seconds[number, left] * left
            lost += seconds[number, left] * float(fragments(np.ones((1, left)), fits)[0])
    for node in np.flatnonzero(shared).tolist():
        own = held.select_rows(held.node == node)
        fits = classes_on(classes, kinds[node], sizes[node])
        more = _count_shared(own, sizes[node], span, fits)
        idle, lost = idle + more.gpu_s, lost + more.fragmented_gpu_s
    return Idle(idle, lost)


def _node_seconds(
    pool_of: Rows, sizes: Rows, held: HeldDevices, span: tuple[float, float], among: Bools
) -> Floats:
    """Seconds that nodes of each pool spent with each number of idle devices."""
    begin, end = span
    most = int(sizes.max(initial=0))
    nodes = np.flatnonzero(among)
    # A change of nothing when the run begins, so that every node has one.
    node = np.concatenate([nodes, held.node, held.node])
    at = np.concatenate([np.full(len(nodes), begin), held.start, held.end])
    change = np.concatenate([np.zeros(len(nodes)), held.gpus, -held.gpus])
    order = np.lexsort((change, at, node))
    node, at, change = node[order], at[order], change[order]
    used = np.cumsum(change)  # each node's changes sum to 0, so the next one begins with 0
    last = np.append(node[1:] != node[:-1], True) if len(node) else np.zeros(0, dtype=bool)
    until = np.where(last, end, np.append(at[1:], end)) if len(node) else at
    left = np.rint(sizes[node] - used).astype(np.intp).clip(0, most)
    cells = pool_of[node] * (most + 1) + left
    pools = int(pool_of.max(initial=-1)) + 1
    seconds = np.maximum(until - at, 0.0)
    seconds_by_cell: Floats = np.bincount(cells, seconds, minlength=pools * (most + 1)).astype(
        float
    )
    return seconds_by_cell.reshape(pools, most + 1)


def _count_shared(
    held: HeldDevices, size: int, span: tuple[float, float], classes: Sequence[JobClass]
) -> Idle:
    """Idle parts of one node whose devices were shared: what is left of each device counts."""
    at = np.concatenate([[span[0]], held.start, held.end])
    claims = np.zeros((len(held.share), size))
    for row, devices in enumerate(held.devices):
        claims[row, list(devices)] = held.share[row]
    change = np.concatenate([np.zeros((1, size)), claims, -claims])
    order = np.argsort(at, kind="stable")
    left = np.clip(1.0 - np.cumsum(change[order], axis=0), 0.0, 1.0)
    seconds = np.maximum(np.diff(np.append(at[order], span[1])), 0.0)
    idle, lost = left.sum(axis=1), fragments(left, classes)
    return Idle(float((seconds * idle).sum()), float((seconds * lost).sum()))
