"""Jobs of workers and parameter servers: one more task, again and again, where it saves most.

Everybody gets one of each first, in queue order; then the best next task of all jobs, by the time
it saves for what it takes of its dominant resource. Small jobs are placed first, each on the fewest
nodes that hold it evenly; one that does not fit whole shrinks to what does.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from weft.core.knowledge.knowledge import Training
from weft.core.model.job import Allocation, JobId
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.formulas.training.tasks import RESOURCES, Tasks, tasks_of
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable
from weft.pieces.place.tasks import Room, evenly, shrink
from weft.pieces.size.marginal import Growth, grow


@frozen
class Served:
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
    room = Room(view, node_gbps)
    bound = view.running() & ~view.preemptible()
    movable = [row for row in rows if not bound[row]]
    held = {row: view.allocation(row) for row in movable}
    for row, on in held.items():
        if on is not None:
            room.give(view.job(row), on)
    counts = _grow(view, movable, room, view.training)
    return _place(view, counts, held, room)


def _grow(
    view: View, rows: list[int], room: Room, training: Training
) -> dict[Served, tuple[int, int]]:
    kinds = list(view.cluster.kinds)
    capacity = np.concatenate([room.of(kind) for kind in kinds])
    left = capacity.copy()
    jobs: list[Served] = []
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
        seconds.append(_seconds(view, served, training))
    grown, _ = grow(Growth(seconds, start, needs, capacity))
    return {job: (w, p) for job, (p, w) in zip(jobs, grown, strict=True)}


def _on_a_kind(view: View, row: int, left: Floats, kinds: list[str]) -> Served:
    """Where a job runs now, else where most GPUs are left."""
    job, on = view.job(row), view.allocation(row)
    tasks = tasks_of(job)
    assert tasks is not None
    if on is not None:
        split = tasks.split(on)
        return Served(
            row,
            tasks,
            view.cluster.kind_of(on),
            (sum(w for w, _ in split), sum(p for _, p in split)),
        )
    gpus = dict(zip(kinds, left[:: len(RESOURCES)].tolist(), strict=True))
    return Served(row, tasks, max(acceptable(job, view.free), key=lambda kind: gpus[kind]))


def _needs(tasks: Tasks, kind: int, kinds: int) -> Floats:
    """A server's and a worker's part of each kind's resources."""
    need = np.zeros((2, kinds, len(RESOURCES)))
    need[0, kind], need[1, kind] = tasks.server.vector, tasks.worker.vector
    return need.reshape(2, -1)


def _seconds(view: View, served: Served, training: Training) -> Floats:
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
    counts: dict[Served, tuple[int, int]],
    held: dict[int, Allocation | None],
    room: Room,
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
        place = evenly(served.tasks, w, p, room, served.kind) or shrink(
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
