"""The trace on one pool of like nodes, shortest predicted service first, without preemption.

The plainest setting in which predictions decide which jobs wait: a job's key is its predicted
length times its GPUs, made again every ten minutes; the first that does not fit holds up the rest.
Predictors learn from the ends of this replay, so nothing is known before it happened here.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from weft.core.events.job_end import Ended, How
from weft.core.knowledge.predictor import Predictor
from weft.core.model.job import Job
from weft.core.model.trace import Truth
from weft.core.state.cells import Floats
from weft.core.state.table import Table
from weft.frozen import frozen

LOOK_AGAIN_S = 600.0
Keys = Callable[[Table, float], Floats]
HOW = {"completed": How.COMPLETED, "failed": How.FAILED, "cancelled": How.CANCELLED}


@frozen
class Replayed:
    """Seconds from submission to end and to start, in order of submission."""

    jct_s: Floats
    wait_s: Floats


def ended_as(job: Job, truth: Truth, at: float) -> Ended:
    """The end of a job that ran as the trace says."""
    gpus = job.demand.gpus * job.demand.share
    how = HOW.get(truth.state, How.COMPLETED)
    done = how is How.COMPLETED
    return Ended(job, truth.length, truth.length * gpus, done, how, None, at)


def replay(
    jobs: Sequence[tuple[Job, Truth]],
    predictor: Predictor,
    nodes: int,
    per_node: int,
    keys: Keys | None = None,
    submitted: Callable[[int, Job, float], None] | None = None,
) -> Replayed:
    """Run every job once; `keys` takes the place of predicted service, smallest first.

    `submitted` gets each job before the predictor does, so that it can ask for the prediction.
    """
    pool, queue, running = Pool(nodes, per_node), Queue(predictor, keys), _Running()
    jct, wait = np.zeros(len(jobs)), np.zeros(len(jobs))
    coming = 0
    while coming < len(jobs) or running.ends:
        now = min(jobs[coming][0].submitted if coming < len(jobs) else np.inf, running.next_end())
        for seq, held in running.ended_by(now):
            pool.give(held)
            predictor.learn(ended_as(*jobs[seq], now))
        while coming < len(jobs) and jobs[coming][0].submitted <= now:
            job = jobs[coming][0]
            if submitted is not None:
                submitted(coming, job, now)
            predictor.note_submitted(job, now)
            queue.add(job, coming, now)
            coming += 1
        queue.look_again(now)
        while (first := queue.first()) is not None:
            seq, places = first, pool.take(jobs[first][0].demand.gpus)
            if places is None:
                break
            queue.remove_first()
            wait[seq] = now - jobs[seq][0].submitted
            jct[seq] = wait[seq] + jobs[seq][1].length
            running.start(now + jobs[seq][1].length, seq, places)
    return Replayed(jct, wait)


class Queue:
    """Waiting jobs, by key; keys are made at submission, and again every ten minutes."""

    def __init__(self, predictor: Predictor, keys: Keys | None) -> None:
        self._keys = keys or (lambda rows, now: predictor.remaining(rows, now) * rows.need)
        self._fixed = keys is not None
        self._jobs: dict[int, Job] = {}
        self._alike: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        self._order: list[tuple[float, int]] = []
        self._looked_at = -np.inf

    def add(self, job: Job, seq: int, now: float) -> None:
        """A job that came; its key may depend on how many alike wait."""
        self._jobs[seq] = job
        alike = self._alike[_who(job)]
        alike.append(seq)
        heapq.heappush(self._order, (self._of(alike, now)[-1], seq))

    def look_again(self, now: float) -> None:
        """Make all keys again, if it is time."""
        if self._fixed or not self._jobs or now < self._looked_at + LOOK_AGAIN_S:
            return
        waiting = [*self._jobs]
        self._order = list(zip(self._of(waiting, now), waiting, strict=True))
        heapq.heapify(self._order)
        self._looked_at = now

    def _of(self, some: list[int], now: float) -> list[float]:
        table = Table(len(some))
        for seq in some:
            table.add(self._jobs[seq], seq)
        made: list[float] = self._keys(table, now).tolist()
        return made

    def first(self) -> int | None:
        """The job to start next; None where none waits."""
        return self._order[0][1] if self._order else None

    def remove_first(self) -> None:
        """It starts."""
        _, seq = heapq.heappop(self._order)
        self._alike[_who(self._jobs.pop(seq))].remove(seq)


def _who(job: Job) -> tuple[object, ...]:
    return job.tenant, job.user, job.model, job.app, job.demand.gpus


class _Running:
    """Which jobs run until when, and where."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, int]] = []
        self._places: dict[int, list[tuple[int, int]]] = {}

    def start(self, until: float, seq: int, places: list[tuple[int, int]]) -> None:
        heapq.heappush(self.ends, (until, seq))
        self._places[seq] = places

    def next_end(self) -> float:
        return self.ends[0][0] if self.ends else np.inf

    def ended_by(self, now: float) -> list[tuple[int, list[tuple[int, int]]]]:
        gone = []
        while self.ends and self.ends[0][0] <= now:
            seq = heapq.heappop(self.ends)[1]
            gone.append((seq, self._places.pop(seq)))
        return gone


class Pool:
    """Free GPUs of nodes: the fullest node that has room, whole empty nodes for large jobs."""

    def __init__(self, nodes: int, per_node: int) -> None:
        self._per_node = per_node
        self._free = [per_node] * nodes
        self._with: list[set[int]] = [set() for _ in range(per_node)] + [set(range(nodes))]

    def take(self, gpus: int) -> list[tuple[int, int]] | None:
        """Nodes with how many of their GPUs; None where there is no room."""
        whole = gpus // self._per_node if gpus > self._per_node else 0
        rest = gpus - whole * self._per_node
        if len(self._with[self._per_node]) < whole:
            return None
        places = [(node, self._per_node) for node in sorted(self._with[self._per_node])[:whole]]
        for node, count in places:
            self._set(node, self._free[node] - count)
        if rest:
            fullest = next(
                (free for free in range(rest, self._per_node + 1) if self._with[free]), 0
            )
            if not fullest:
                self.give(places)
                return None
            node = min(self._with[fullest])
            self._set(node, self._free[node] - rest)
            places.append((node, rest))
        return places

    def give(self, places: list[tuple[int, int]]) -> None:
        """Back what was taken."""
        for node, count in places:
            self._set(node, self._free[node] + count)

    def _set(self, node: int, free: int) -> None:
        self._with[self._free[node]].discard(node)
        self._free[node] = free
        self._with[free].add(node)
