"""The truth for jobs of workers and servers, and for jobs whose loss is followed.

Speeds are exact by layer and by where tasks are; what a job reports of itself is its speed, the
updates it has made, and its loss.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.events.report import NO_REPORT, Report
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import FallingLoss, Truth
from weft.core.protocols import Pace, PerfModel, SimulatedJob
from weft.formulas.training.tasks import Tasks, tasks_of
from weft.frozen import frozen
from weft.perf.training.layers import BUCKET_MB, Network, all_reduce_s, network_of, speed


@frozen
class Layered:
    """Jobs with layers by those, with servers or without, other jobs by `base`.

    Losses are reported where the truth has them.
    """

    base: PerfModel

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """The behaviour of one job."""
        tasks, network = tasks_of(job), network_of(job)
        inner: SimulatedJob
        if tasks is None:
            inner = self.base.simulate_job(job, truth) if network is None else Reduced(job, network)
        else:
            if network is None:
                raise InvalidConfig(
                    f"job {job.id!r} has servers but no layers",
                    hint="give it hints layer0_forward_s, layer0_backward_s, layer0_mb, ...",
                )
            inner = Served(tasks, network, truth.length)
        return inner if truth.curve is None else Losing(inner, truth.curve, truth.length)

    def restart(self, job: Job, *, first: bool) -> float:
        """As elsewhere."""
        return self.base.restart(job, first=first)


class Served:
    """A job of workers and servers, somewhere.

    It ends with its last update: a second of `length` is an equal part of all updates.
    """

    __slots__ = ("_length", "_network", "_rate", "_split", "_tasks", "_updates")

    def __init__(self, tasks: Tasks, network: Network, length: float) -> None:
        self._tasks, self._network, self._length = tasks, network, length
        self._rate = 0.0
        self._split = (0.0, 0.0)
        self._updates = 0.0

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - layers are of one kind
        """Take note of the tasks and their places."""
        split = self._tasks.split(on)
        updates = speed(self._network, self._tasks, split)
        self._rate = updates * self._length / self._tasks.steps
        self._split = (float(sum(w for w, _ in split)), float(sum(p for _, p in split)))
        self._updates = updates

    def pace(self, done: float, until_tick: float) -> Pace:
        """The same speed while it stays."""
        steps = done / self._length * self._tasks.steps
        workers, servers = self._split
        report = Report(workers=workers, servers=servers, updates_per_s=self._updates, steps=steps)
        return Pace(self._rate, until_tick, report)


class Reduced:
    """A job with layers and no servers: its GPUs reduce gradients among themselves, by buckets.

    Hint `batch` is shared by all GPUs, `bucket_mb` and `latency_s` are of the reduction, and
    `node_gbps` is the link inside a node, `worker_gbps` where nothing is said of it.
    """

    __slots__ = ("_asked", "_hints", "_local", "_network", "_rate")

    def __init__(self, job: Job, network: Network) -> None:
        self._hints, self._asked = job.hints, job.demand.gpus
        if job.hints.get("batch", 0.0) <= 0.0:
            raise InvalidConfig(
                f"job {job.id!r} has layers but no batch size",
                hint="give it a hint batch: samples of all GPUs in a step",
            )
        self._network = network
        self._local = replace(network, gbps=job.hints.get("node_gbps", network.gbps))
        self._rate = 1.0

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - layers are of one kind
        """1 is the speed of what was asked for, spread over nodes."""
        network = self._local if len(on.slices) == 1 else self._network
        self._rate = self._seconds(self._network, self._asked) / self._seconds(network, on.gpus)

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002 - always the same
        """The same speed while it stays."""
        return Pace(self._rate, until_tick)

    def _seconds(self, network: Network, gpus: int) -> float:
        return all_reduce_s(
            network,
            self._hints["batch"] / gpus,
            gpus,
            bucket_mb=self._hints.get("bucket_mb", BUCKET_MB),
            latency_s=self._hints.get("latency_s", 0.0),
        )


class Losing:
    """A job that also reports its loss at the end of every round and of every restart."""

    __slots__ = ("_curve", "_gpus", "_inner", "_largest", "_length", "_reported", "_seen")

    def __init__(self, inner: SimulatedJob, curve: FallingLoss, length: float) -> None:
        self._inner, self._curve, self._length = inner, curve, length
        self._gpus = 0
        self._seen = self._reported = -1
        self._largest = 0.0

    def begin(self, on: Allocation, kind: str) -> None:
        """Take note of the size."""
        self._inner.begin(on, kind)
        self._gpus = on.gpus

    def pace(self, done: float, until_tick: float) -> Pace:
        """The inner job's pace, until the end of the round at most."""
        pace = self._inner.pace(done, until_tick)
        each = self._length / self._curve.iterations
        k = int(done / each + 1e-6)
        recent = self._curve.measured(max(min(self._seen, k - 1), 0), k)
        change = np.abs(np.diff(recent))
        self._largest = max(self._largest, float(change.max(initial=0.0)))
        self._seen = max(self._seen, k)
        report = replace(
            pace.report or NO_REPORT,
            iteration=float(k),
            loss=float(recent[-1]),
            loss_change=float(change[-1]) if len(change) else 0.0,
            loss_change_most=self._largest,
            iteration_s=each / pace.rate if pace.rate > 0.0 else None,
            gpus=float(self._gpus),
        )
        return Pace(pace.rate, min(pace.seconds, until_tick), report)
