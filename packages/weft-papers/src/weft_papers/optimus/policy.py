"""Optimus: one more GPU, again and again, to the job whose completion it speeds up most.

Paper       Peng et al., "Optimus: An efficient dynamic resource scheduler for deep learning
            clusters", EuroSys 2018.
Objective   the sum of the times that jobs still take.
Needs       an estimate of each job's remaining time, and beliefs about goodput; a job without
            beliefs is assumed to speed up linearly. For jobs with parameter servers: their tasks,
            trial runs of a few sizes, and their losses.
Controls    how many GPUs, and where; for jobs with servers, also how many servers.
Cost        O(jobs x sizes) for speeds, then O(GPUs log jobs) to hand out GPUs.
Deviations  jobs with parameter servers are resized as in the paper, after all others; trial runs
            cost no time here. Servers live in the host parts of slices, so every node with one has
            a worker; links are counted by the policy alone; servers come and go without a restart
            while the GPUs stay. Other jobs train by all-reduce: their speeds come from their own
            reports, not from trial runs, and their remaining times from the losses of their epochs
            where they report any, else from the configured predictor. The paper knows one kind of
            GPU: here a job gets the kind with most room and keeps it. A job starts with its least
            size, which need not be one GPU; a part of a GPU is counted as a whole one. Jobs go on
            the fewest nodes there are, evenly spread or not, and stay where they are while their
            size is the same.
"""

from __future__ import annotations

from dataclasses import field
from math import ceil

import numpy as np

from weft.core.knowledge.knowledge import TrainingKnowledge
from weft.core.model.job import Allocation, Config, JobId
from weft.core.plan.about import About, Controls, Needs, sizes_in_rounds
from weft.core.plan.plan import Plan, merge
from weft.core.plan.taxonomy import Elasticity, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.formulas.training.tasks import RESOURCES, Tasks, tasks_of
from weft.frozen import frozen
from weft.pieces.order.equals import put_holders_first
from weft.pieces.parts import Sizes
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.pieces.place.parts import assign_each
from weft_papers.optimus.marginal import Growth, grow
from weft_papers.optimus.tasks import NodeRemainder, place_evenly, shrink

WHERE = classify(
    Objective.COMPLETION_TIME,
    NeededKnowledge.DURATIONS | NeededKnowledge.SPEEDS | NeededKnowledge.LOSSES,
    Preemption.STOPS | Preemption.RESIZES,
    Elasticity.GPUS | Elasticity.SERVERS,
)


@frozen
class Optimus:
    """The minimum size for every job first, then GPUs by what they save; every `interval` seconds.

    `node_gbps` is the link of a node, which the tasks of jobs with parameter servers share.
    """

    interval: float = 600.0
    node_gbps: float = 25.0

    @property
    def about(self) -> About:
        needs, also = Needs.REMAINING, Controls.HOST
        return sizes_in_rounds(
            "optimus", "Peng et al. 2018", self.interval, WHERE, needs=needs, also=also
        )

    stops = False  # the least size goes to all jobs first

    def choose_sizes(self, view: View) -> Sizes:
        """Least sizes and growth, of jobs that reduce among themselves."""
        room, speeds = _room(view), _speeds(view)
        base = least_sizes(view, room, speeds)
        grown = grow_sizes(view, base, room, speeds)
        return Sizes({row: _config(view, *size) for row, size in grown.items()})

    def decide(self, view: View) -> Plan:
        served = find_served_rows(view)
        if not served:
            return self._grow_whole(view)
        hidden = np.zeros(len(view.table), dtype=bool)
        hidden[served] = True
        others = self._grow_whole(view.without(hidden)) if not hidden.all() else Plan()
        return merge([others, Plan(resize_served(view, served, self.node_gbps))])

    def _grow_whole(self, view: View) -> Plan:
        """Jobs that reduce among themselves; jobs that change size go on the fewest nodes."""
        changes = assign_each(view, self.choose_sizes(view).wanted, fewest_nodes)
        return Plan({view.job(row).id: on for row, on in changes.items()})


def _config(view: View, kind: str, gpus: int) -> Config:
    return Config(kind, ceil(gpus / view.cluster.node_size(kind)), gpus)


@frozen
class SizeSpeeds:
    """Speed of each row by kind and number of GPUs; linear where nothing is believed.

    `units` are GPUs of one replica of each row on each kind.
    """

    limit: int
    matrix: dict[str, Floats]
    units: dict[str, Floats]

    def of(self, row: int, kind: str) -> Floats:
        """Speeds on 1, 2, ... GPUs of a kind."""
        believed = self.matrix.get(kind)
        if believed is None or np.isnan(believed[row, 0]):
            return np.arange(1.0, self.limit + 1.0)
        return np.asarray(believed[row])

    def unit(self, row: int, kind: str) -> int:
        """GPUs that a row on a kind gets more at a time; 0 where it cannot run."""
        return int(self.units[kind][row]) if kind in self.units else 1


def least_sizes(view: View, room: dict[str, int], speeds: SizeSpeeds) -> dict[int, tuple[str, int]]:
    """Kind and size of the rows that get any, in queue order; jobs that must not stop first.

    Of equals those that run come first.
    """
    left, sizes = dict(room), {}
    bound = _bound(view)
    for row in put_holders_first(view, np.argsort(~bound, kind="stable")).tolist():
        size = _held_size(view, row) if bound[row] else _least(view, row, left, speeds)
        if size is not None:
            left[size[0]] -= size[1]
            sizes[row] = size
    return sizes


def grow_sizes(
    view: View, base: dict[int, tuple[str, int]], room: dict[str, int], speeds: SizeSpeeds
) -> dict[int, tuple[str, int]]:
    """Return the sizes of the same rows after GPUs were handed out, one replica at a time."""
    kinds, identity = list(room), np.eye(len(room))
    left, bound = _left(view), _bound(view)
    seconds, start, needs, units = [], [], [], []
    for row, (kind, count) in base.items():
        demand = view.job(row).demand
        unit = count if bound[row] else max(speeds.unit(row, kind), 1)
        most = count if bound[row] else max(min(demand.max, room[kind]), count)
        took = _seconds(float(left[row]), demand.gpus, most, speeds.of(row, kind))
        seconds.append(took[::unit])
        start.append((count // unit,))
        needs.append(unit * identity[[kinds.index(kind)]])
        units.append(unit)
    capacity = np.array([float(room[kind]) for kind in kinds])
    counts, _ = grow(Growth(seconds, start, needs, capacity))
    sizes = [n * unit for (n,), unit in zip(counts, units, strict=True)]
    return {row: (base[row][0], size) for row, size in zip(base, sizes, strict=True)}


def _bound(view: View) -> Bools:
    """Rows that run and may not be stopped."""
    return view.running() & ~view.preemptible()


def _left(view: View) -> Floats:
    """Seconds left of each row; an unknown time is taken to be the longest known."""
    left = np.array(view.remaining())
    if view.training is not None:
        for row, job in enumerate(view.table.jobs):
            by_loss = view.training.seconds_left(job)
            left[row] = left[row] if by_loss is None else by_loss
    known = np.isfinite(left)
    return np.where(known, left, left[known].max(initial=1.0))


def _held_size(view: View, row: int) -> tuple[str, int] | None:
    on = view.allocation(row)
    return (view.cluster.kind_of(on), on.gpus) if on is not None else None


def _least(
    view: View, row: int, room: dict[str, int], speeds: SizeSpeeds
) -> tuple[str, int] | None:
    """The least size in whole replicas: where the row runs now, else where most room is left."""
    demand, held = view.job(row).demand, _held_size(view, row)
    fitting: dict[str, int] = {}
    for kind in acceptable(view.job(row), view.free):
        unit = speeds.unit(row, kind)
        count = ceil(demand.min / unit) * unit if unit else 0
        if 0 < count <= min(demand.max, room[kind]):
            fitting[kind] = count
    own = held[0] if held is not None else None
    best = max(fitting, key=lambda kind: (kind == own, room[kind]), default=None)
    return None if best is None else (best, fitting[best])


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


def _speeds(view: View) -> SizeSpeeds:
    """Return the believed speed of every size that some job may have."""
    limit = int(view.table.column(TableColumns.MAX).max(initial=1.0))
    if view.beliefs is None or not len(view.table) or not view.cluster.nodes:
        return SizeSpeeds(limit, {}, {})
    kinds = view.cluster.kinds
    sizes = [
        Config(kind, ceil(n / view.cluster.node_size(kind)), n)
        for kind in kinds
        for n in range(1, limit + 1)
    ]
    goodput = view.beliefs.goodputs(view.table, sizes)
    units = view.beliefs.units(view.table, kinds)
    return SizeSpeeds(
        limit,
        dict(zip(kinds, np.split(goodput, len(kinds), axis=1), strict=True)),
        dict(zip(kinds, units.T, strict=True)),
    )


def _seconds(left: float, asked: int, most: int, speed: Floats) -> Floats:
    """Seconds a job takes by its number of GPUs, from those left on as many as it asked for."""
    possible = np.flatnonzero(speed > 0.0) + 1
    if not possible.size:
        return np.full(most + 1, np.inf)
    # The size asked for may be out of reach yet: it is taken to be linear from one that is not.
    near = int(possible[possible <= asked].max(initial=possible[0]))
    work = left * float(speed[near - 1]) * asked / near
    seconds = np.full(most + 1, np.inf)
    np.divide(work, speed[:most], out=seconds[1:], where=speed[:most] > 0.0)
    return seconds


# ---- Jobs of workers and parameter servers: one more task, again and again, where it saves
# most
#
# Each job gets one of each first, in queue order; then the best next task of all jobs, by the
# time it saves for what it takes of its dominant resource. Small jobs are placed first, each on
# the fewest nodes that hold it evenly; one that does not fit whole shrinks to what does.


@frozen
class ServedJob:
    """A job with servers: on which kind it is, and what it holds now (workers, servers)."""

    row: int
    tasks: Tasks
    kind: str
    held: tuple[int, int] = field(default=(0, 0))


def find_served_rows(view: View) -> list[int]:
    """Rows of jobs with servers of which something is known."""
    if view.training is None:
        return []
    return [
        row
        for row, job in enumerate(view.table.jobs)
        if "server_cpus" in job.hints and view.training.ratios(job) is not None
    ]


def resize_served(view: View, rows: list[int], node_gbps: float) -> dict[JobId, Allocation | None]:
    """Changes for jobs with servers; what others hold stays taken."""
    assert view.training is not None
    room = NodeRemainder(view, node_gbps)
    bound = view.running() & ~view.preemptible()
    movable = [row for row in rows if not bound[row]]
    held = {row: view.allocation(row) for row in movable}
    for row, on in held.items():
        if on is not None:
            room.give(view.job(row), on)
    counts = _grow(view, movable, room, view.training)
    return _place(view, counts, held, room)


def _grow(
    view: View, rows: list[int], room: NodeRemainder, training: TrainingKnowledge
) -> dict[ServedJob, tuple[int, int]]:
    kinds = list(view.cluster.kinds)
    capacity = np.concatenate([room.of(kind) for kind in kinds])
    left = capacity.copy()
    jobs: list[ServedJob] = []
    seconds: list[Floats] = []
    start: list[tuple[int, ...]] = []
    needs: list[Floats] = []
    for row in rows:
        served = _on_a_kind(view, row, left, kinds)
        least = view.job(row).demand.min
        need = _needs(served.tasks, kinds.index(served.kind), len(kinds))
        base = need[0] + least * need[1]
        if (base > left + 1e-9).any():
            continue  # nothing this time
        left -= base
        jobs.append(served)
        start.append((1, least))
        needs.append(need)
        seconds.append(_served_s(view, served, training))
    grown, _ = grow(Growth(seconds, start, needs, capacity))
    return {job: (w, p) for job, (p, w) in zip(jobs, grown, strict=True)}


def _on_a_kind(view: View, row: int, left: Floats, kinds: list[str]) -> ServedJob:
    """Serve a job on the kind on which it runs, else on the one with most GPUs left."""
    job, on = view.job(row), view.allocation(row)
    tasks = tasks_of(job)
    assert tasks is not None
    if on is not None:
        split = tasks.split(on)
        return ServedJob(
            row,
            tasks,
            view.cluster.kind_of(on),
            (sum(w for w, _ in split), sum(p for _, p in split)),
        )
    gpus = dict(zip(kinds, left[:: len(RESOURCES)].tolist(), strict=True))
    return ServedJob(row, tasks, max(acceptable(job, view.free), key=lambda kind: gpus[kind]))


def _needs(tasks: Tasks, kind: int, kinds: int) -> Floats:
    """A server's and a worker's part of each kind's resources."""
    need = np.zeros((2, kinds, len(RESOURCES)))
    need[0, kind], need[1, kind] = tasks.server.vector, tasks.worker.vector
    return need.reshape(2, -1)


def _served_s(view: View, served: ServedJob, training: TrainingKnowledge) -> Floats:
    """Time left by servers and workers, infinite beyond what the user allows."""
    job, tasks = view.job(served.row), served.tasks
    step = training.step_seconds(job, job.demand.max, tasks.most_servers)
    left = training.steps_left(job)
    assert step is not None
    p, w = np.ogrid[: step.shape[0], : step.shape[1]]
    allowed = np.ones(step.shape, dtype=bool)
    for server, worker, cap in zip(
        tasks.server.vector, tasks.worker.vector, tasks.caps, strict=True
    ):
        allowed &= p * server + w * worker <= cap + 1e-9
    allowed[1, job.demand.min] = True
    return np.where(allowed, (tasks.steps if left is None else left) * step, np.inf)


def _place(
    view: View,
    counts: dict[ServedJob, tuple[int, int]],
    held: dict[int, Allocation | None],
    room: NodeRemainder,
) -> dict[JobId, Allocation | None]:
    changes: dict[JobId, Allocation | None] = {
        view.job(row).id: None for row, on in held.items() if on is not None
    }
    moving = []
    for served, wanted in counts.items():
        on = held[served.row]
        if on is not None and served.held == wanted:
            room.take(view.job(served.row), on)
            del changes[view.job(served.row).id]
        else:
            moving.append((sum(wanted), served.row, served, wanted))
    for _, row, served, (w, p) in sorted(moving, key=lambda entry: entry[:2]):
        place = place_evenly(served.tasks, w, p, room, served.kind) or shrink(
            served.tasks, w, p, room, served.kind
        )
        job = view.job(row)
        if place is not None and place.gpus >= job.demand.min:
            room.take(job, place)
            if place == held[row]:
                changes.pop(job.id, None)
            else:
                changes[job.id] = place
    return changes
