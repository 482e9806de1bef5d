"""Node and job failures, drawn from a seed before the first event."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster, Node
from weft.core.model.trace import Trace
from weft.frozen import frozen

HOUR = 3600.0


@frozen
class Faults:
    """Mean hours between failures of a node and of a running job; 0 means never.

    A failed node is back after `repair_h` hours on average; all times are exponential.
    """

    node_mtbf_h: float = 0.0
    repair_h: float = 1.0
    job_mtbf_h: float = 0.0

    def __post_init__(self) -> None:
        if min(self.node_mtbf_h, self.job_mtbf_h) < 0 or self.repair_h <= 0:
            raise InvalidConfig(
                f"faults need times above 0, got node_mtbf_h={self.node_mtbf_h:g}, "
                f"repair_h={self.repair_h:g}, job_mtbf_h={self.job_mtbf_h:g}"
            )

    def with_failures(self, trace: Trace, seed: int) -> Trace:
        """A trace with points of progress at which runs die, beside its own."""
        if not self.job_mtbf_h:
            return trace
        rng = np.random.default_rng([seed, 1])
        mean = self.job_mtbf_h * HOUR
        jobs = []
        for job, truth in trace:
            points, at = list(truth.failures), float(rng.exponential(mean))
            while at < truth.length:
                points.append(at)
                at += float(rng.exponential(mean))
            jobs.append((job, replace(truth, failures=tuple(sorted(points)))))
        return replace(trace, jobs=tuple(jobs))

    def outages(self, cluster: Cluster, seed: int) -> Iterator[tuple[float, bool, Node]]:
        """Without end: (time, whether it comes up, node), in order of time."""
        if not self.node_mtbf_h or not cluster.nodes:
            return
        rng = np.random.default_rng([seed, 2])
        fail, repair = self.node_mtbf_h * HOUR, self.repair_h * HOUR
        turns = [(float(rng.exponential(fail)), i, False) for i in range(len(cluster.nodes))]
        heapq.heapify(turns)
        while True:
            at, i, up = heapq.heappop(turns)
            yield at, up, cluster.nodes[i]
            heapq.heappush(turns, (at + float(rng.exponential(fail if up else repair)), i, not up))
