"""Optimus: one more GPU, again and again, to the job that finishes the sooner for it.

Paper       Peng et al., "Optimus: An efficient dynamic resource scheduler for deep learning
            clusters", EuroSys 2018.
Objective   the sum of the times that jobs still take.
Needs       an estimate of each job's remaining time, and beliefs about goodput; a job of which
            nothing is believed is taken to speed up linearly.
Controls    how many GPUs, and where.
Cost        O(jobs x sizes) for speeds, then O(GPUs log jobs) to hand out GPUs.
Deviations  jobs train by all-reduce: there are no parameter servers to add. The estimates come
            from the configured predictor and the jobs' own reports, not from loss curves and
            trial runs. The paper knows one kind of GPU: here a job gets the kind with most
            room and keeps it. A job starts with its least size, which need not be one GPU; a
            part of a GPU is counted as a whole one. Jobs go on the fewest nodes there are,
            evenly spread or not, and stay where they are while their size is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from weft.core.about import About, Controls, Needs
from weft.core.model import Allocation, Config, JobId
from weft.core.plan import Plan
from weft.core.table import Floats
from weft.core.view import View
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.pieces.size.marginal import Growth, grow


@dataclass(frozen=True, slots=True)
class Optimus:
    """The least size to everybody first, then GPUs by what they save; every `interval` seconds."""

    interval: float = 600.0

    @property
    def about(self) -> About:
        """Decides once an interval."""
        return About(
            "optimus",
            "Peng et al. 2018",
            needs=Needs.REMAINING,
            controls=Controls.COUNT,
            every=self.interval,
        )

    def decide(self, view: View) -> Plan:
        """Least sizes, growth, places."""
        room, speeds = _room(view), _speeds(view)
        base = least_sizes(view, room, speeds)
        return _placed(view, grown(view, base, room, speeds))


@dataclass(frozen=True, slots=True)
class Speeds:
    """Speed of each row by kind and number of GPUs; linear where nothing is believed."""

    limit: int
    matrix: dict[str, Floats]

    def of(self, row: int, kind: str) -> Floats:
        """Speeds on 1, 2, ... GPUs of a kind."""
        believed = self.matrix.get(kind)
        if believed is None or np.isnan(believed[row, 0]):
            return np.arange(1.0, self.limit + 1.0)
        return np.asarray(believed[row])


def least_sizes(view: View, room: dict[str, int], speeds: Speeds) -> dict[int, tuple[str, int]]:
    """Kind and size of the rows that get anything, in queue order; who may not stop goes first."""
    left, found = dict(room), {}
    bound = view.running() & ~view.preemptible()
    for row in np.argsort(~bound, kind="stable").tolist():
        held = view.allocation(row)
        count = held.gpus if held is not None and bound[row] else view.job(row).demand.min
        kind = _kind(view, row, count, left, speeds)
        if kind is not None:
            left[kind] -= count
            found[row] = (kind, count)
    return found


def grown(
    view: View, base: dict[int, tuple[str, int]], room: dict[str, int], speeds: Speeds
) -> dict[int, tuple[str, int]]:
    """The same rows after GPUs were handed out one by one."""
    kinds, rows = list(room), list(base)
    left = view.remaining()
    known = np.isfinite(left)
    left = np.where(known, left, left[known].max(initial=1.0))
    bound = view.running() & ~view.preemptible()
    seconds = []
    for row in rows:
        kind, count = base[row]
        most = count if bound[row] else min(view.job(row).demand.max, room[kind])
        seconds.append(
            _seconds(float(left[row]), view.job(row).demand.gpus, most, speeds.of(row, kind))
        )
    one = np.eye(len(kinds))
    needs = [one[[kinds.index(base[row][0])]] for row in rows]
    start = [(base[row][1],) for row in rows]
    capacity = np.array([float(room[kind]) for kind in kinds])
    counts, _ = grow(Growth(seconds, start, needs, capacity))
    return {row: (base[row][0], n) for row, (n,) in zip(rows, counts, strict=True)}


def _room(view: View) -> dict[str, int]:
    """Devices of each kind that are free or held by rows of the view."""
    room = dict(zip(view.free.kinds, view.free.idle_by_kind(), strict=True))
    held = {
        (part.node, gpu)
        for on in view.table.allocations
        for part in (on.slices if on is not None else ())
        for gpu in part.gpus
    }
    for node, _ in held:
        room[view.cluster.nodes[view.cluster.index[node]].kind] += 1
    return room


def _speeds(view: View) -> Speeds:
    """What is believed about every size that some job may have."""
    limit = int(view.table.column("max").max(initial=1.0))
    if view.beliefs is None or not len(view.table):
        return Speeds(limit, {})
    kinds = view.cluster.kinds
    sizes = [
        Config(kind, ceil(n / view.cluster.node_size(kind)), n)
        for kind in kinds
        for n in range(1, limit + 1)
    ]
    goodput = view.beliefs.goodputs(view.table, sizes)
    return Speeds(limit, dict(zip(kinds, np.split(goodput, len(kinds), axis=1), strict=True)))


def _kind(view: View, row: int, count: int, room: dict[str, int], speeds: Speeds) -> str | None:
    """Where a job runs now, if it can; else where most is left."""
    on = view.allocation(row)
    own = view.cluster.kind_of(on) if on is not None else None
    kinds = [kind for kind in acceptable(view.job(row), view.free) if room[kind] >= count]
    return max(
        kinds,
        key=lambda kind: (speeds.of(row, kind)[count - 1] > 0.0, kind == own, room[kind]),
        default=None,
    )


def _seconds(left: float, asked: int, most: int, speed: Floats) -> Floats:
    """Seconds a job takes by its number of GPUs, from those left on as many as it asked for."""
    possible = np.flatnonzero(speed[:asked] > 0.0)
    if not possible.size:
        return np.full(most + 1, np.inf)
    largest = int(possible[-1]) + 1
    work = left * float(speed[largest - 1]) * asked / largest
    seconds = np.full(most + 1, np.inf)
    np.divide(work, speed[:most], out=seconds[1:], where=speed[:most] > 0.0)
    return seconds


def _placed(view: View, sizes: dict[int, tuple[str, int]]) -> Plan:
    """Places for the rows whose size changed, small ones first; the others stay."""
    changes: dict[JobId, Allocation | None] = {}
    moving: list[int] = []
    for row, on in enumerate(view.table.allocations):
        stays = on is not None and (view.cluster.kind_of(on), on.gpus) == sizes.get(row)
        if on is not None and not stays:
            view.free.give(on)
            changes[view.job(row).id] = None
        if row in sizes and not stays:
            moving.append(row)
    for row in sorted(moving, key=lambda row: (sizes[row][1], row)):
        (kind, count), job = sizes[row], view.job(row)
        demand = replace(job.demand, gpus=count, kinds=(kind,))
        place = fewest_nodes(replace(job, demand=demand), view.free)
        if place is not None:
            view.free.take(place)
            changes[job.id] = place
    return Plan(changes)
