"""Utility of a set of GPUs of a machine, to a job and to the cluster.

Three costs of a set: communication, interference on the sockets it touches, and fragmentation; a
cost that is 0 counts `LEAST`. Utilities are in (0, 1]: 1 is the best there can be.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weft.core.model.topology import NodeTopology
from weft.core.state.cells import Floats
from weft.formulas.network.link_scores import Masks, count_bits, list_sets, mask_of, sum_inside
from weft.frozen import frozen

LEAST = 0.01

# Of communication, interference and fragmentation.
Emphasis = Literal["equal", "locality", "interference", "spread"]
WEIGHTS: dict[Emphasis, tuple[float, float, float]] = {
    "equal": (1 / 3, 1 / 3, 1 / 3),
    "locality": (0.8, 0.1, 0.1),
    "interference": (0.1, 0.8, 0.1),
    "spread": (0.1, 0.1, 0.8),
}
# Costs are raised to the power of their weights, as the authors' code does, or summed, as their
# paper has it.
Form = Literal["power", "sum"]


@frozen
class TopologyUtility:
    """Rules that turn costs into utilities."""

    emphasis: Emphasis = "equal"
    form: Form = "power"

    def of_system(self, communication: Floats, interference: Floats, broken: Floats) -> Floats:
        """Return the cluster's gain by each set."""
        return self._join((communication, interference, broken), WEIGHTS[self.emphasis])

    def of_job(self, communication: Floats, interference: Floats) -> Floats:
        """Return the job's own gain: fragmentation is not its concern."""
        first, second, _ = WEIGHTS[self.emphasis]
        if self.form == "sum":
            both = first + second
            return self._join((communication, interference), (first / both, second / both))
        return self._join((communication, interference), (1.5 * first, 1.5 * second))

    def _join(self, costs: tuple[Floats, ...], weights: tuple[float, ...]) -> Floats:
        total: Floats = np.zeros_like(costs[0])
        for cost, weight in zip(costs, weights, strict=True):
            total = total + (weight * cost if self.form == "sum" else cost**weight)
        n = len(costs)
        best: float = LEAST if self.form == "sum" else n * LEAST ** (1 / n)
        gained: Floats = np.minimum(best / total, 1.0)
        return gained


@lru_cache(maxsize=256)
def price_communication(topology: NodeTopology, count: int) -> Floats:
    """Of every set of `count` GPUs, in the order of `list_sets`: how far apart they are.

    The sum of distances of its pairs beyond the least for that many, over the most.
    """
    masks = list_sets(topology.gpus, count)
    if count < 2:
        return np.full(len(masks), LEAST)
    distances = np.array(topology.distances)
    apart = sum_inside(distances)[masks]
    worst = max(float(distances.max()) * count, float(apart.max() - apart.min()))
    price: Floats = np.maximum((apart - apart.min()) / worst, LEAST)
    return price


def price_fragments(
    topology: NodeTopology, free: int, masks: Masks, *, shipped: bool = False
) -> Floats:
    """The mean over sockets of what part of each stays free.

    `shipped` takes away the GPUs that are not in the set, as the authors' code does.
    """
    total, bits = np.zeros(len(masks)), count_bits(topology.gpus)
    groups = topology.sockets or (tuple(range(topology.gpus)),)
    for group in groups:
        socket = mask_of(group)
        left = (masks if shipped else ~masks) & free & socket
        total += bits[left] / len(group)
    mean = total / len(groups)
    return np.where((mean == 0.0) | (mean == 1.0), LEAST, mean)


def list_touched(topology: NodeTopology, masks: Masks) -> NDArray[np.int64]:
    """The sockets that each set touches, as bit masks of sockets."""
    touched = np.zeros(len(masks), dtype=np.int64)
    for number, group in enumerate(topology.sockets or (tuple(range(topology.gpus)),)):
        touched |= np.where(masks & mask_of(group), 1 << number, 0)
    return touched
