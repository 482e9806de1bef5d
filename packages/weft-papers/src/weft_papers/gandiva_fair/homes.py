"""Homes of jobs: servers chosen by the tickets on them, and moves that balance these.

A server's load is the tickets of its jobs over its GPUs. Where all loads are equal, local stride
schedulers give every job its due (section 4 of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.core.state.cells import Floats

Home = dict[NodeId, int]
EPS = 1e-9


class Homes:
    """GPUs of every job by server, and the tickets that each brings; rewritten by a decision."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.home: dict[JobId, Home] = {}
        self.tickets: dict[JobId, float] = {}
        self._on: dict[NodeId, dict[JobId, None]] = {node.id: {} for node in nodes}
        self._sum = dict.fromkeys(self.nodes, 0.0)
        self._kinds: dict[str, list[Node]] = {}
        for node in nodes:
            self._kinds.setdefault(node.kind, []).append(node)
        # Loads of a kind's servers, the smallest first, and where each server's is.
        self._sorted = {k: sorted(of, key=lambda node: node.gpus) for k, of in self._kinds.items()}
        self._loads = {kind: np.zeros(len(of)) for kind, of in self._kinds.items()}
        self._at: dict[NodeId, tuple[Floats, int]] = {
            node.id: (self._loads[kind], i)
            for kind, of in self._sorted.items()
            for i, node in enumerate(of)
        }
        self._large: dict[tuple[str, int], int] = {}

    def residents(self, node: NodeId) -> Sequence[JobId]:
        """Jobs at home on a server, in the order they came."""
        return tuple(self._on[node])

    def kind_of(self, job: JobId) -> str:
        return self.nodes[next(iter(self.home[job]))].kind

    def load(self, node: NodeId) -> float:
        """Tickets over GPUs of a server."""
        loads, at = self._at[node]
        return float(loads[at])

    def set_home(self, job: JobId, home: Home, tickets: float = 0.0) -> None:
        """Give a job a home, another one where it has one."""
        if job in self.home:
            self._count(job, -1.0)
            for node in self.home[job]:
                del self._on[node][job]
        self.home[job], self.tickets[job] = home, tickets
        self._count(job, 1.0)
        for node in home:
            self._on[node][job] = None

    def set_tickets(self, tickets: Mapping[JobId, float]) -> None:
        """Other tickets for every job at home."""
        self.tickets = dict(tickets)
        sums = dict.fromkeys(self.nodes, 0.0)
        for job, home in self.home.items():
            each = tickets[job] / sum(home.values())
            for node, size in home.items():
                sums[node] += each * size
        self._sum = sums
        for loads in self._loads.values():
            loads.fill(0.0)
        for node, living in self._on.items():
            if living:
                self._weigh(node)

    def least_loaded(self, gpus: int, kind: str) -> Home | None:
        """The least loaded home of a kind for a gang; several servers where none is large enough.

        Of equal loads the server with the fewest GPUs to spare; None where all are too few.
        """
        nodes = self._sorted.get(kind, [])
        first = self._first_large_enough(kind, gpus)
        if first < len(nodes):
            # The smallest come first, so that the first of equal loads is the tightest.
            return {nodes[first + int(self._loads[kind][first:].argmin())].id: gpus}
        home: Home = {}
        nodes = self._kinds.get(kind, [])
        for node in sorted(nodes, key=lambda node: (-node.gpus, self.load(node.id))):
            home[node.id] = min(node.gpus, gpus)
            gpus -= home[node.id]
            if gpus == 0:
                return home
        return None

    def _first_large_enough(self, kind: str, gpus: int) -> int:
        """Return the index of the first server of a kind, smallest first, that holds the gang."""
        key = kind, gpus
        if key not in self._large:
            self._large[key] = sum(node.gpus < gpus for node in self._sorted.get(kind, []))
        return self._large[key]

    def best_move(
        self, kind: str, movable: Mapping[JobId, bool], least_gain: float
    ) -> tuple[JobId, NodeId] | None:
        """The move off the most loaded server of a kind that lowers its load most.

        None where the load is not above the average, or no move gains more than `least_gain`.
        """
        nodes = self._kinds.get(kind, [])
        if len(nodes) < 2:
            return None
        target = sum(self._sum[node.id] for node in nodes) / sum(node.gpus for node in nodes)
        worst = max(nodes, key=lambda node: self.load(node.id))
        least = min(nodes, key=lambda node: self.load(node.id))
        high, low = self.load(worst.id), self.load(least.id)
        if high <= target + EPS or worst.id == least.id:
            return None
        best: tuple[float, JobId] | None = None
        for job in self._on[worst.id]:
            size = self.home[job][worst.id]
            if not movable.get(job, False) or len(self.home[job]) > 1 or size > least.gpus:
                continue
            tickets = self.tickets[job]
            gain = high - max(high - tickets / worst.gpus, low + tickets / least.gpus)
            if gain > least_gain + EPS and (best is None or gain > best[0] + EPS):
                best = gain, job
        return None if best is None else (best[1], least.id)

    def _count(self, job: JobId, sign: float) -> None:
        home = self.home[job]
        each = sign * self.tickets[job] / sum(home.values())
        for node, size in home.items():
            self._sum[node] += each * size
            self._weigh(node)

    def _weigh(self, node: NodeId) -> None:
        loads, at = self._at[node]
        loads[at] = self._sum[node] / self.nodes[node].gpus
