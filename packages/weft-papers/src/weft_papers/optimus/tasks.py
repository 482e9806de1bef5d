"""Places for workers and servers: the fewest nodes, each with as many of both (Optimus 2018).

A worker reaches the servers of its own node without the network; of all ways to use that many equal
nodes, an even one leaves the least traffic between them.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Allocation, Job, Slice
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.formulas.training.tasks import RESOURCES, Tasks, tasks_of


class NodeRemainder:
    """Resources left of every node, in the order of `RESOURCES`; nodes x resources.

    A node's links are not in the ledger: `node_gbps` says what each has, and the tasks of running
    jobs take of it what they declare.
    """

    def __init__(self, view: View, node_gbps: float) -> None:
        self.free: Capacity = view.free
        nodes = view.cluster.nodes
        self.kinds = np.array([node.kind for node in nodes], dtype=object)
        self.left = np.zeros((len(nodes), len(RESOURCES)))
        for i in range(len(nodes)):
            self.left[i] = (self.free.on(i), *self.free.host(i), node_gbps)
        for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
            if on is not None and (tasks := tasks_of(job)) is not None:
                self._links(tasks, on, -1.0)

    def of(self, kind: str) -> Floats:
        return np.asarray(self.left[self.kinds == kind].sum(axis=0))

    def take(self, job: Job, on: Allocation) -> None:
        """Promise an allocation, in the ledger too."""
        self.free.take(on)
        self._count(job, on, -1.0)

    def give(self, job: Job, on: Allocation) -> None:
        """Take a promise back, in the ledger too."""
        self.free.give(on)
        self._count(job, on, 1.0)

    def _count(self, job: Job, on: Allocation, sign: float) -> None:
        for part in on.slices:
            node = self.free.cluster.index[part.node]
            self.left[node, 0] = self.free.on(node)
            self.left[node, 1:3] = self.free.host(node)
        if (tasks := tasks_of(job)) is not None:
            self._links(tasks, on, sign)

    def _links(self, tasks: Tasks, on: Allocation, sign: float) -> None:
        for part, (workers, servers) in zip(on.slices, tasks.split(on), strict=True):
            gbps = workers * tasks.worker.gbps + servers * tasks.server.gbps
            self.left[self.free.cluster.index[part.node], 3] += sign * gbps


def place_evenly(
    tasks: Tasks, workers: int, servers: int, room: NodeRemainder, kind: str
) -> Allocation | None:
    """On the first number of least used nodes that holds all; None if there is none.

    A slice is of devices, so that every node used has a worker.
    """
    nodes = np.flatnonzero((room.kinds == kind) & (room.left[:, 0] > 0.5))
    order = nodes[np.argsort(-room.left[nodes, 1], kind="stable")]
    left = room.left[order]
    for count in range(1, min(workers, len(order)) + 1):
        dealt = _deal(workers, servers, count)
        if (_take(tasks, dealt) <= left[:count] + 1e-6).all():
            return _allocation(tasks, dealt, order[:count].tolist(), room.free)
    return None


def shrink(
    tasks: Tasks, workers: int, servers: int, room: NodeRemainder, kind: str
) -> Allocation | None:
    """All that fits of a job that does not fit whole: servers and workers by turns.

    Node by node, the least used first; None if not one of each fits.
    """
    nodes = np.flatnonzero((room.kinds == kind) & (room.left[:, 0] > 0.5))
    order = nodes[np.argsort(-room.left[nodes, 1], kind="stable")]
    w, s = tasks.worker.vector, tasks.server.vector
    placed: list[tuple[int, int, int]] = []
    for node in order.tolist():
        left, here = room.left[node].copy(), [0, 0]
        while workers + servers > 0:
            # A worker first, for a node without one cannot be held.
            want = int(here[0] > 0 and servers > 0 and (here[1] <= here[0] or workers == 0))
            need, rest = ((w, workers), (s, servers))[want]
            if rest == 0 or (need > left + 1e-6).any():
                break
            left -= need
            here[want] += 1
            workers, servers = workers - (want == 0), servers - (want == 1)
        if here[0]:
            placed.append((node, here[0], here[1]))
    if not placed or not sum(p for _, _, p in placed):
        return None
    dealt = np.array([(a, b) for _, a, b in placed])
    return _allocation(tasks, dealt, [node for node, _, _ in placed], room.free)


def _deal(workers: int, servers: int, nodes: int) -> Floats:
    return np.array(
        [(len(range(i, workers, nodes)), len(range(i, servers, nodes))) for i in range(nodes)]
    )


def _take(tasks: Tasks, dealt: Floats) -> Floats:
    return np.asarray(
        dealt[:, :1] * tasks.worker.vector[None, :] + dealt[:, 1:] * tasks.server.vector[None, :]
    )


def _allocation(tasks: Tasks, dealt: Floats, nodes: list[int], free: Capacity) -> Allocation:
    slices = []
    for node, (workers, servers) in zip(nodes, dealt.tolist(), strict=True):
        need = tasks.need(int(workers), int(servers))
        gpus = free.slice(node, int(workers)).gpus
        slices.append(Slice(free.cluster.nodes[node].id, gpus, float(need[1]), float(need[2])))
    return Allocation(tuple(slices))
