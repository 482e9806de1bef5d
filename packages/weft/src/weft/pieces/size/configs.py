"""Sizes to choose from: powers of two inside a node, then whole nodes (Sia, SOSP 2023).

What is acceptable to a job, what it holds, and what it may begin with.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from weft.core.model.cluster import Cluster
from weft.core.model.job import Config, Demand
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.solve.few_jobs import NONE


def valid_configs(cluster: Cluster, max_gpus: int = 64) -> tuple[Config, ...]:
    """Powers of two inside a node, then whole nodes, of every kind."""
    return _valid_configs(tuple(cluster.largest_nodes.items()), max_gpus)


@lru_cache(maxsize=64)
def _valid_configs(
    nodes_by_kind: tuple[tuple[str, tuple[int, int]], ...], max_gpus: int
) -> tuple[Config, ...]:
    """Sizes of that many of the largest nodes of each kind."""
    configs: list[Config] = []
    for kind, (size, nodes) in nodes_by_kind:
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
    configs: list[Config] = []
    if not sizes:
        return ()
    for kind in view.cluster.kinds:
        size = view.cluster.node_size(kind)
        every = [Config(kind, -(-gpus // size), gpus) for gpus in sizes]
        room = view.cluster.gpus_by_kind[kind]
        configs += [c for c in every if (kind, c.gpus) not in known and c.gpus <= room]
    return tuple(configs)


@lru_cache(maxsize=64)
def kinds_of(configs: tuple[Config, ...], kinds: tuple[str, ...]) -> Rows:
    """The number of the kind of each configuration; not to be written to."""
    numbers = np.array([kinds.index(config.kind) for config in configs], dtype=np.intp)
    numbers.flags.writeable = False
    return numbers


@lru_cache(maxsize=64)
def gpus_of(configs: tuple[Config, ...]) -> Floats:
    """The GPUs of each configuration; not to be written to."""
    counts = np.array([float(config.gpus) for config in configs])
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=64)
def _numbers_of(configs: tuple[Config, ...]) -> dict[tuple[str, int], int]:
    return {(config.kind, config.gpus): number for number, config in enumerate(configs)}


def find_held(view: View, configs: tuple[Config, ...]) -> Floats:
    """The configuration each row holds; one past the last for a size that is none of them."""
    numbers, other, kind_of = _numbers_of(configs), len(configs), view.cluster.kind_of
    held = [
        float(NONE) if on is None else numbers.get((kind_of(on), on.gpus), other)
        for on in view.table.allocations
    ]
    return np.array(held, dtype=float)


def find_acceptable(demand: Demand, configs: tuple[Config, ...], gpus: Floats) -> Bools:
    """Configurations, of that many GPUs each, that a demand takes."""
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
