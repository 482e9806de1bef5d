"""The truth for jobs of workers and servers, and for jobs whose loss is followed.

Speeds are exact by layer and by where tasks are; what a job reports of itself is its speed, the
updates it has made, and its loss.

Time of a training step by its layers, with parameter servers or by all-reduce.

The backward pass runs from the last layer to the first, and a layer's gradients travel as soon as
they are there, one layer (or bucket of layers) at a time, while earlier layers still compute. The
exact laws follow every layer; the ratio form states what is left exposed as a fixed part of the
traffic, so that completion time is a sum of two ratios of affine functions (SMD, INFOCOM 2021).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.events.report import NO_REPORT, Report
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import FallingLoss, Truth
from weft.core.protocols import Pace, PerfModel, SimulatedJob
from weft.formulas.training.regimes import Regimes, Runs, regimes_of
from weft.formulas.training.tasks import Ratios, Split, Tasks, tasks_of
from weft.frozen import frozen

GBIT_PER_MB = 8e-3
BUCKET_MB = 25.0


class ModelLayer(NamedTuple):
    """Seconds forward for each sample, seconds backward for each step, MB of gradients."""

    forward_s: float
    backward_s: float
    mb: float


@frozen
class Network:
    """Layers from the input side on, and what exchanging their gradients costs.

    `gbps` is the rate of one server (or of one worker, by all-reduce), `update_s` the seconds a
    server works on a MB of gradients.
    """

    layers: tuple[ModelLayer, ...]
    gbps: float
    update_s: float = 0.0

    @property
    def forward_s(self) -> float:
        """Seconds forward of one sample."""
        return sum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self) -> float:
        """Seconds backward of one step."""
        return sum(layer.backward_s for layer in self.layers)

    @property
    def mb(self) -> float:
        """All gradients."""
        return sum(layer.mb for layer in self.layers)

    def transfers(self, remote: float, workers: float, servers: float) -> list[float]:
        """Seconds to push and pull each layer, where `remote` workers share each server's link.

        Workers beside a server reach it without the network, but it updates for all.
        """
        each = 2.0 * GBIT_PER_MB * remote / (servers * self.gbps)
        each += self.update_s * workers / servers
        return [each * layer.mb for layer in self.layers]


def compute_exposed_s(layers: Sequence[ModelLayer], transfers: Sequence[float]) -> float:
    """Seconds from the start of the backward pass until the last gradient has arrived."""
    computed = sent = 0.0
    for layer, seconds in zip(reversed(layers), reversed(transfers), strict=True):
        computed += layer.backward_s
        sent = max(computed, sent) + seconds
    return max(sent, computed)


def step_s(network: Network, samples: float, split: Split) -> float:
    """Exact seconds of a step with parameter servers, `samples` on each worker.

    Every server of a job holds an equal part of each layer: the slowest is the one with the
    fewest workers beside it.
    """
    workers = sum(w for w, _ in split)
    servers = sum(p for _, p in split)
    if not workers or not servers:
        return inf
    remote = max(workers - w for w, p in split if p)
    transfers = network.transfers(remote, workers, servers)
    return samples * network.forward_s + compute_exposed_s(network.layers, transfers)


def place_apart(workers: int, servers: int) -> Split:
    """Workers and servers that share no node."""
    return ((workers, 0), (0, servers))


def place_together(workers: int, servers: int, node_gpus: int) -> Split:
    """The fewest nodes that hold the workers, tasks dealt evenly."""
    nodes = max(-(-workers // max(node_gpus, 1)), 1)
    return tuple(
        (len(range(i, workers, nodes)), len(range(i, servers, nodes))) for i in range(nodes)
    )


def speed(network: Network, tasks: Tasks, split: Split) -> float:
    """Updates a second: synchronous workers share a batch, others each have their own."""
    workers = sum(w for w, _ in split)
    if tasks.sync:
        return 1.0 / step_s(network, tasks.batch / max(workers, 1), split)
    return workers / step_s(network, tasks.batch, split)


def overlap(network: Network, split: Split) -> float:
    """The part rho in [0, 1) of the traffic that hides behind the backward pass."""
    workers = sum(w for w, _ in split)
    servers = sum(p for _, p in split)
    remote = max((workers - w for w, p in split if p), default=0)
    traffic = sum(network.transfers(remote, workers, servers))
    if traffic <= 0.0:
        return 0.0
    left = compute_exposed_s(network.layers, network.transfers(remote, workers, servers))
    return 1.0 - (left - network.backward_s) / traffic


def ratio_form(network: Network, tasks: Tasks, at: Split) -> Ratios:
    """Seconds of the whole training as a sum of ratios, its overlap measured at one point."""
    workers, servers = sum(w for w, _ in at), sum(p for _, p in at)
    hidden = overlap(network, at)
    remote = max((workers - w for w, p in at if p), default=0)
    full = sum(network.transfers(remote, workers, servers)) * servers / workers
    return ratios(tasks, network.forward_s, network.backward_s, (1.0 - hidden) * full)


def ratios(tasks: Tasks, forward_s: float, backward_s: float, exchange_s: float) -> Ratios:
    """Completion time by kappa = `exchange_s`: what is exposed of an exchange where w = p."""
    steps = tasks.steps
    if tasks.sync:
        return Ratios(
            steps * backward_s, over_w=steps * tasks.batch * forward_s, w_over_p=steps * exchange_s
        )
    alone = tasks.batch * forward_s + backward_s
    return Ratios(over_w=steps * alone, over_p=steps * exchange_s)


def all_reduce_s(
    network: Network,
    samples: float,
    workers: int,
    *,
    bucket_mb: float = BUCKET_MB,
    latency_s: float = 0.0,
) -> float:
    """Exact seconds of a step by ring all-reduce, gradients sent by buckets of layers.

    A bucket closes once it holds `bucket_mb`, and travels when its last layer is computed and the
    bucket before it has arrived: 2 (w - 1) / w of its bytes over each link.
    """
    computed = sent = waiting = 0.0
    ring = 2.0 * (workers - 1) / workers
    for i, layer in enumerate(reversed(network.layers)):
        computed += layer.backward_s
        waiting += layer.mb
        if waiting >= bucket_mb or i == len(network.layers) - 1:
            took = ring * waiting * GBIT_PER_MB / network.gbps
            sent = max(computed, sent) + took + latency_s * (workers > 1)
            waiting = 0.0
    return samples * network.forward_s + max(computed, sent)


def network_of(job: Job) -> Network | None:
    """The layers a job says it has; None of a job that says nothing of them."""
    hints = job.hints
    layers: list[ModelLayer] = []
    while f"layer{len(layers)}_mb" in hints:
        name = f"layer{len(layers)}"
        forward, backward = (
            hints.get(f"{name}_forward_s", 0.0),
            hints.get(f"{name}_backward_s", 0.0),
        )
        layers.append(ModelLayer(forward, backward, hints[f"{name}_mb"]))
    if not layers:
        return None
    gbps = hints.get("server_gbps", hints.get("worker_gbps", 0.0))
    if gbps <= 0.0 or min(min(layer) for layer in layers) < 0.0:
        raise InvalidConfig(
            f"job {job.id!r}: layers of negative times or sizes, or links of {gbps} Gb/s",
            hint="hints layerN_forward_s, layerN_backward_s, layerN_mb and server_gbps",
        )
    return Network(tuple(layers), gbps, hints.get("update_s_per_mb", 0.0))


@frozen
class Layered:
    """Jobs with layers by those, with servers or without, other jobs by `base`.

    Losses are reported where the truth has them.
    """

    base: PerfModel

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
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
            inner = LayeredJob(tasks, network, truth.length)
        return inner if truth.curve is None else Losing(inner, truth.curve, truth.length)

    def restart(self, job: Job, *, first: bool) -> float:
        return self.base.restart(job, first=first)


class LayeredJob:
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
        """Return the present speed, which stays."""
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
        """Return the one speed of the job."""
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


EPS = 1e-6


@frozen
class InRegimes:
    """Jobs with a schedule by their regimes, other jobs by `base`."""

    base: PerfModel

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        inner = self.base.simulate_job(job, truth)
        if not truth.schedule:
            return inner
        declared = regimes_of(job)
        if declared is None or not {batch for batch, _ in truth.schedule} <= set(declared.epoch_s):
            raise InvalidConfig(
                f"job {job.id!r} changes to batch sizes that it does not declare",
                hint="give it hints epochs, regime0_batch, regime0_epoch_s, ...",
            )
        return Adapting(inner, declared, truth.schedule, truth.length)

    def restart(self, job: Job, *, first: bool) -> float:
        return self.base.restart(job, first=first)


class Adapting:
    """A job that changes its batch size at epochs of its schedule."""

    __slots__ = ("_declared", "_ends", "_inner", "_runs", "_scale")

    def __init__(self, inner: SimulatedJob, declared: Regimes, runs: Runs, length: float) -> None:
        self._inner, self._declared, self._runs = inner, declared, runs
        seconds = [declared.epoch_s[batch] * epochs for batch, epochs in runs]
        # A trace that was stretched has all its epochs stretched.
        self._scale = length / sum(seconds)
        self._ends = [end * self._scale for end in accumulate(seconds)]

    def begin(self, on: Allocation, kind: str) -> None:
        """Take note of the size."""
        self._inner.begin(on, kind)

    def pace(self, done: float, until_tick: float) -> Pace:
        """The speed of the allocation, until the regime or the round ends."""
        pace = self._inner.pace(done, until_tick)
        run = min(bisect_right(self._ends, done + EPS), len(self._runs) - 1)
        batch, epochs = self._runs[run]
        epoch_s = self._declared.epoch_s[batch] * self._scale
        since = done - (self._ends[run] - epochs * epoch_s)
        before = sum(n for _, n in self._runs[:run])
        report = Report(epoch=float(before + int(since / epoch_s + 1e-6)), batch=float(batch))
        left = max(self._ends[run] - done, 0.0)
        seconds = left / pace.rate if pace.rate > 0.0 and run < len(self._runs) - 1 else until_tick
        return Pace(pace.rate, min(pace.seconds, until_tick, seconds), report)
