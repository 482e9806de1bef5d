"""How long a choice by links takes: `python -m benchmarks placement_speed`.

CPU milliseconds, the slowest of many free sets that were not asked for before, with the tables of
the node's type made; and what making those tables takes, once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from weft.core.knowledge.traffic import Pattern
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation
from weft.core.model.node_types import NODE_TYPES
from weft.core.model.topology import GpuLink, NodeTopology
from weft.formulas.network.link_scores import score_sets
from weft.pieces.place.matching import choose
from weft.testing.build import view_of
from weft_papers.topology.policy import Topology

TRIES = 60


def run() -> dict[str, float]:
    """Numbers by name, in CPU milliseconds."""
    rng = random.Random(7)
    torus = build_torus()
    warm = {
        topology.name: measure(lambda t=topology: score_sets(t, Pattern.RING))  # type: ignore[misc]
        for topology in (NODE_TYPES["dgx-1v"], torus)
    }
    return {
        "choice on 8 GPUs, ms": max(time_choices(NODE_TYPES["dgx-1v"], rng)),
        "choice on 16 GPUs, ms": max(time_choices(torus, rng)),
        "bipartition of 64 GPUs in 8 nodes, ms": max(time_mappings(rng)),
        "tables of 8 GPUs, once, ms": warm["dgx-1v"],
        "tables of 16 GPUs, once, ms": warm["torus"],
    }


def time_choices(topology: NodeTopology, rng: random.Random) -> list[float]:
    """Of random free sets and sizes, in both forms of `preserve`."""
    took = []
    for _ in range(TRIES):
        some = rng.getrandbits(topology.gpus) | 0b11
        free = some if rng.random() < 0.5 else (1 << topology.gpus) - 1
        count = rng.randint(1, free.bit_count())
        sensitive = rng.random() < 0.5

        def once(f: int = free, k: int = count, s: bool = sensitive) -> object:
            return choose(topology, f, k, Pattern.RING, "preserve", sensitive=s)

        took.append(measure(once))
    return took


def time_mappings(rng: random.Random) -> list[float]:
    """One job on machines that are all taken differently."""
    took = []
    policy = Topology()
    cluster = parse_cluster("8x8:v100@dgx-1v")
    for _ in range(TRIES):
        view = view_of(cluster, ("a", rng.randint(1, 6), 60.0))
        for node in range(8):
            taken = rng.getrandbits(8) & rng.getrandbits(8)
            if taken:
                view.free.take(Allocation((view.free.slice_of(node, taken),)))
        took.append(measure(lambda v=view: policy.decide(v)))  # type: ignore[misc]
    return took


def build_torus() -> NodeTopology:
    """A 4 x 4 torus: rows by two lanes, columns by one; nothing about it is uniform."""
    links = {}
    for row in range(4):
        for column in range(4):
            here = 4 * row + column
            right, below = 4 * row + (column + 1) % 4, (here + 4) % 16
            links[frozenset((here, right))] = GpuLink(here, right, 2, 50.0)
            links[frozenset((here, below))] = GpuLink(here, below, 1, 25.0)
    return NodeTopology("torus", 16, tuple(links.values()))


def measure(work: Callable[[], object]) -> float:
    """CPU milliseconds of one call."""
    began = time.process_time()
    work()
    return 1e3 * (time.process_time() - began)
