"""Tasks one at a time to the job that gains most for what the task takes (Optimus, EuroSys 2018).

A job's gain is the time it saves with one more task, for each unit of the resource of which the
task takes the largest part of the cluster.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.frozen import frozen

Counts = tuple[int, ...]


class Added(NamedTuple):
    """One step: which job got which sort of task, and what it gained."""

    job: int
    task: int
    gain: float


@frozen
class Growth:
    """Jobs that may grow, and the room there is.

    `seconds[i]` is how long job i still takes, by its number of tasks of each sort; it cannot
    have more of them than the array has room for. `needs[i]` is tasks x resources.
    """

    seconds: Sequence[Floats]
    start: Sequence[Counts]
    needs: Sequence[Floats]
    capacity: Floats


def grow(problem: Growth, *, stop_at_misfit: bool = False) -> tuple[list[Counts], list[Added]]:
    """Tasks of every job in the end, and the order in which they were added.

    Ties go to the first sort of task and to the earlier job. A job whose best task does not fit
    gets no more of any; with `stop_at_misfit` no job does.
    """
    counts = list(problem.start)
    room = problem.capacity - _used(problem)
    heap = [
        (-gain, i, task) for i in range(len(counts)) for gain, task in _best(problem, i, counts[i])
    ]
    heapq.heapify(heap)
    order: list[Added] = []
    while heap:
        loss, i, task = heapq.heappop(heap)
        need = problem.needs[i][task]
        if (need > room + 1e-9).any():
            if stop_at_misfit:
                break
            continue
        room -= need
        counts[i] = _plus(counts[i], task)
        order.append(Added(i, task, -loss))
        # Gains may rise again after a task: each job's is computed again, never remembered.
        for gain, best in _best(problem, i, counts[i]):
            heapq.heappush(heap, (-gain, i, best))
    return counts, order


def _used(problem: Growth) -> Floats:
    held = [np.array(c) @ need for c, need in zip(problem.start, problem.needs, strict=True)]
    return np.sum(held, axis=0) if held else np.zeros_like(problem.capacity)


def _best(problem: Growth, i: int, now: Counts) -> list[tuple[float, int]]:
    """The largest gain of a job and its task; nothing if no task gains anything."""
    seconds = problem.seconds[i]
    best: list[tuple[float, int]] = []
    for task, size in enumerate(seconds.shape):
        if now[task] + 1 >= size:
            continue
        saved = float(seconds[now]) - float(seconds[_plus(now, task)])
        gain = saved / _dominant(problem.needs[i][task], problem.capacity)
        if gain > 0.0 and (not best or gain > best[0][0]):
            best = [(gain, task)]
    return best


def _dominant(need: Floats, capacity: Floats) -> float:
    """Return a task's need of the resource that it takes the largest part of."""
    part = np.divide(need, capacity, out=np.full(len(need), np.inf), where=capacity > 0.0)
    return float(need[np.where(need > 0.0, part, -1.0).argmax()]) or 1.0


def _plus(counts: Counts, task: int) -> Counts:
    return (*counts[:task], counts[task] + 1, *counts[task + 1 :])
