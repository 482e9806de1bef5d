"""Speeds as running jobs reported them: what is believed, made true for a simulation.

A job about which nothing is believed runs in proportion to its GPUs, as in a plain replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from weft.core.knowledge.knowledge import Beliefs
from weft.core.model.job import Allocation, Config, Job, JobId
from weft.core.model.trace import Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.core.state.table import JobTable
from weft.perf.replay import FULL, Replay
from weft.perf.restart import restart_s

NO_KINDS: Mapping[JobId, str] = MappingProxyType({})


class Believed:
    """Speed on a kind and size over that on what the job asked for, as far as is known.

    `kinds` gives the kind of that time: where a job's length was measured. Any kind is as good
    for a job that is not in it.
    """

    steady = True

    def __init__(self, beliefs: Beliefs, kinds: Mapping[JobId, str] = NO_KINDS) -> None:
        self._beliefs, self._kinds = beliefs, kinds
        self._replay = Replay()

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """A job that runs at one speed wherever it is put."""
        return _Believed(self, job) if self.knows(job) else self._replay.simulate_job(job, truth)

    def restart(self, job: Job, *, first: bool) -> float:
        """Nothing at the first start; later what it is believed to cost."""
        if first:
            return 0.0
        cost = float(self._beliefs.restart_s(_table(job))[0])
        return cost if np.isfinite(cost) and cost > 0.0 else restart_s(job.model)

    def knows(self, job: Job) -> bool:
        """Return true if a job has reported its speed."""
        config = Config("", 1, max(job.demand.gpus, 1))
        return not np.isnan(self._beliefs.goodputs(_table(job), (config,))[0, 0])

    def speed(self, job: Job, kind: str, nodes: int, gpus: int) -> float:
        """Speed there; 1 is on as many devices as it asked for, of its kind and on one node.

        In proportion to its GPUs where nothing is known.
        """
        asked = max(job.demand.gpus, 1)
        wanted = (Config(kind, nodes, gpus), Config(self._kinds.get(job.id, kind), 1, asked))
        goodput, whole = self._beliefs.goodputs(_table(job), wanted)[0]
        known = np.isfinite(goodput) and np.isfinite(whole) and whole > 0.0 and goodput > 0.0
        return float(goodput / whole) if known else gpus / asked


class _Believed:
    """One job's pace, found out once for each shape it runs on."""

    __slots__ = ("_job", "_pace", "_perf")

    def __init__(self, perf: Believed, job: Job) -> None:
        self._perf, self._job = perf, job
        self._pace = FULL

    def begin(self, on: Allocation, kind: str) -> None:
        """Take note of the kind, the nodes and the size."""
        self._pace = Pace(self._perf.speed(self._job, kind, len(on.slices), on.gpus))

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return self._pace


def _table(job: Job) -> JobTable:
    table = JobTable(1)
    table.add(job, 0)
    return table
