"""Time of a training step by its layers, with parameter servers or by all-reduce.

The backward pass runs from the last layer to the first, and a layer's gradients travel as soon as
they are there, one layer (or bucket of layers) at a time, while earlier layers still compute. The
exact laws follow every layer; the ratio form states what is left exposed as a fixed part of the
traffic, so that completion time is a sum of two ratios of affine functions (SMD, INFOCOM 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.formulas.training.learning import Ratios
from weft.formulas.training.tasks import Split, Tasks
from weft.frozen import frozen

GBIT_PER_MB = 8e-3
BUCKET_MB = 25.0


class Layer(NamedTuple):
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

    layers: tuple[Layer, ...]
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


def compute_exposed_s(layers: Sequence[Layer], transfers: Sequence[float]) -> float:
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


def apart(workers: int, servers: int) -> Split:
    """Workers and servers that share no node."""
    return ((workers, 0), (0, servers))


def even(workers: int, servers: int, node_gpus: int) -> Split:
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
            steps * backward_s,
            over_w=steps * tasks.batch * forward_s,
            w_over_p=steps * exchange_s,
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
    layers: list[Layer] = []
    while f"layer{len(layers)}_mb" in hints:
        name = f"layer{len(layers)}"
        forward, backward = (
            hints.get(f"{name}_forward_s", 0.0),
            hints.get(f"{name}_backward_s", 0.0),
        )
        layers.append(Layer(forward, backward, hints[f"{name}_mb"]))
    if not layers:
        return None
    gbps = hints.get("server_gbps", hints.get("worker_gbps", 0.0))
    if gbps <= 0.0 or min(min(layer) for layer in layers) < 0.0:
        raise InvalidConfig(
            f"job {job.id!r}: layers of negative times or sizes, or links of {gbps} Gb/s",
            hint="hints layerN_forward_s, layerN_backward_s, layerN_mb and server_gbps",
        )
    return Network(tuple(layers), gbps, hints.get("update_s_per_mb", 0.0))
