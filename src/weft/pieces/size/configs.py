"""Sizes to choose from: powers of two inside a node, then whole nodes (Sia, SOSP 2023).

What is acceptable to a job, what it holds, and what it may begin with.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from weft.core.model.cluster import Cluster
from weft.core.model.job import Config, Demand
from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats
from weft.solve.multiple_choice import NONE


def valid_configs(cluster: Cluster, max_gpus: int = 64) -> tuple[Config, ...]:
    """Powers of two inside a node, then whole nodes, of every kind."""
    configs: list[Config] = []
    counts = Counter([(node.kind, node.gpus) for node in cluster.nodes])
    for kind in cluster.kinds:
        size = cluster.node_size(kind)
        nodes = counts[kind, size]
        configs += [Config(kind, 1, 2**i) for i in range(size.bit_length()) if 2**i <= size]
        configs += [Config(kind, n, n * size) for n in range(2, nodes + 1) if n * size <= max_gpus]
    return tuple(configs)


def rigid_configs(view: View, valid: tuple[Config, ...]) -> tuple[Config, ...]:
    """The sizes of jobs that take only one, on every kind, where they are not valid ones.

    One replica of an execution plan is such a size as well.
    """
    known = {(config.kind, config.gpus) for config in valid}
    wanted = {job.demand.gpus for job in view.table.jobs if job.demand.rigid}
    plans = {plan for job in view.table.jobs for plan in job.plans}
    sizes = sorted(wanted | {plan.unit * max(plan.data, 1) for plan in plans})
    configs = []
    for kind in view.cluster.kinds:
        size = view.cluster.node_size(kind)
        every = [Config(kind, -(-gpus // size), gpus) for gpus in sizes]
        room = view.cluster.gpus_by_kind[kind]
        configs += [c for c in every if (kind, c.gpus) not in known and c.gpus <= room]
    return tuple(configs)


def find_held(view: View, configs: tuple[Config, ...]) -> Floats:
    """The configuration each row holds; one past the last for a size that is none of them."""
    index = {(config.kind, config.gpus): i for i, config in enumerate(configs)}
    held = np.full(len(view.table), float(NONE))
    for row, on in enumerate(view.table.allocations):
        if on is not None:
            held[row] = index.get((view.cluster.kind_of(on), on.gpus), len(configs))
    return held


def find_acceptable(demand: Demand, configs: tuple[Config, ...], gpus: Floats) -> Bools:
    """Which configurations, of that many GPUs each, a demand takes."""
    fits: Bools = (gpus >= demand.min) & (gpus <= demand.max)
    if demand.kinds:
        fits &= np.array([config.kind in demand.kinds for config in configs])
    return fits


def find_smallest(configs: tuple[Config, ...], fits: Bools, units: Floats) -> Bools:
    """The smallest size of whole replicas on each kind."""
    least: dict[str, int] = {}
    for config, ok, unit in zip(configs, fits, units, strict=True):
        if ok and unit and config.gpus % unit == 0:
            least[config.kind] = min(least.get(config.kind, config.gpus), config.gpus)
    return np.array([least.get(c.kind) == c.gpus for c in configs]) & fits & (units > 0)
