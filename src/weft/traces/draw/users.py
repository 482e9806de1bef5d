"""Who submits: few users own most jobs, and each belongs to one tenant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.traces.draw.arrivals import Ints

# Nodes of the virtual clusters, as the studies of the traces count them.
PHILLY_TENANTS = (64, 64, 64, 32, 32, 32, 16, 16, 16, 8, 8)
VENUS_TENANTS = (32, 20, 12, 11, 10, 9, 8, 8, 6, 5, 4, 4, 3, 2, 1)


def draw_users(count: int, users: int, sigma: float, rng: np.random.Generator) -> Ints:
    """A user for each of `count` bursts; weights are lognormal with `sigma`."""
    weight = np.exp(sigma * rng.standard_normal(users))
    return rng.choice(users, size=count, p=weight / weight.sum())


def tenants_of(users: int, nodes: Sequence[int], rng: np.random.Generator) -> Ints:
    """The tenant of each user, likelier where the tenant has more nodes."""
    size = np.asarray(nodes, dtype=np.float64)
    return rng.choice(size.size, size=users, p=size / size.sum())
