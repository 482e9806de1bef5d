"""Places by links: which free GPUs of a node suit the way a job's workers talk, after MAPA.

Choices are kept by free GPUs, pattern and rule: a node of 8 has 256 sets of free GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from weft.core.knowledge.traffic import Pattern
from weft.core.model.job import Allocation, Job
from weft.core.model.topology import NodeTopology
from weft.core.state.capacity import Capacity
from weft.formulas.network.link_scores import list_sets, mask_of, score_sets
from weft.pieces.place.gangs import Placer, acceptable, fewest_nodes

# Which of the sets of free GPUs that match is taken: the lowest numbers; the first of one socket,
# else the lowest; the most bandwidth over all edges; or, for jobs that mind bandwidth, the most
# that they should get, and for others the one that leaves the most NVLink behind.
Rule = Literal["lowest", "socket", "greedy", "preserve"]


class DeviceChoice(NamedTuple):
    """A set of GPUs as a bit mask, and what it is worth, in GB/s.

    `aggregated` is over all edges of the pattern, `predicted` what workers should get, `preserved`
    the NVLink bandwidth among the GPUs that stay free, `lost` the part of it that this set costs.
    """

    mask: int
    aggregated: float
    predicted: float
    preserved: float
    lost: float


def match(rule: Rule) -> Placer:
    """A placer that chooses GPUs inside nodes by a rule, and the node where they are best.

    A gang that no node can hold takes the fewest nodes; nodes that say nothing of links are taken
    last by jobs that mind, and first by others.
    """

    def place(job: Job, free: Capacity) -> Allocation | None:
        if job.demand.share < 1.0 or not free.cluster.joined:
            return fewest_nodes(job, free)
        for kind in acceptable(job, free) if job.demand.nodes < 2 else ():
            if (best := _best(job, free, kind, rule)) is not None:
                return Allocation((free.slice_of(*best),))
        spread = fewest_nodes(job, free)
        return None if spread is None else _rematch(job, free, spread, rule)

    return place


def is_sensitive(job: Job) -> bool:
    """True if bandwidth matters to a job; assumed if not declared."""
    return job.demand.gpus > 1 and (job.traffic is None or job.traffic.sensitive)


def pattern_of(job: Job) -> Pattern:
    """The pattern in which a job's workers communicate: a ring if not declared."""
    return Pattern.RING if job.traffic is None else job.traffic.pattern


@lru_cache(maxsize=65536)
def choose(
    topology: NodeTopology, free: int, count: int, pattern: Pattern, rule: Rule, *, sensitive: bool
) -> DeviceChoice | None:
    """The set of `count` of the `free` GPUs that a rule takes; None if there are fewer."""
    masks = list_sets(topology.gpus, count)
    masks = masks[(masks & ~free) == 0]
    if not masks.size:
        return None
    scores = score_sets(topology, pattern)
    left = scores.nvlink[free & ~masks]
    if rule == "greedy":
        best = int(np.argmax(scores.aggregated[masks]))
    elif rule == "preserve" and sensitive:
        best = int(np.argmax(scores.predicted[masks]))
    elif rule == "preserve":
        kept = np.flatnonzero(left == left.max())
        best = int(kept[np.argmax(scores.aggregated[masks[kept]])])
    else:
        best = _first_of_socket(topology, masks.tolist()) if rule == "socket" else 0
    mask, preserved = int(masks[best]), float(left[best])
    return DeviceChoice(
        mask,
        float(scores.aggregated[mask]),
        float(scores.predicted[mask]) if count > 1 else 0.0,
        preserved,
        float(scores.nvlink[free]) - preserved,
    )


def _first_of_socket(topology: NodeTopology, masks: list[int]) -> int:
    sockets = [mask_of(group) for group in topology.sockets]
    inside = (i for i, mask in enumerate(masks) if any(not mask & ~socket for socket in sockets))
    return next(inside, 0)


def _best(job: Job, free: Capacity, kind: str, rule: Rule) -> tuple[int, int] | None:
    """(node, devices) of the best choice in one node; the fullest of several as good."""
    count, sensitive = job.demand.gpus, is_sensitive(job)
    best: tuple[tuple[float, ...], int, int] | None = None
    for node in _with_room(free, kind, count):
        topology, mask = free.cluster.nodes[node].topology, free.idle_mask(node)
        if topology is None:
            gpus, worth = free.slice(node, count).gpus, (0.0, 0.0)
            chosen = mask_of(gpus)
        else:
            choice = choose(topology, mask, count, pattern_of(job), rule, sensitive=sensitive)
            assert choice is not None
            chosen, worth = choice.mask, _worth(choice, rule, sensitive=sensitive)
        if best is None or worth > best[0]:
            best = (worth, node, chosen)
    return None if best is None else best[1:]


def _worth(choice: DeviceChoice, rule: Rule, *, sensitive: bool) -> tuple[float, float]:
    """The key by which one node's choice is better than another's."""
    if rule == "greedy":
        return choice.aggregated, 0.0
    if rule == "preserve":
        return (choice.predicted, 0.0) if sensitive else (-choice.lost, choice.aggregated)
    return 0.0, 0.0


def _with_room(free: Capacity, kind: str, count: int) -> Iterator[int]:
    """Nodes that can hold `count` devices, the fullest first."""
    for size in range(count, free.cluster.node_size(kind) + 1):
        yield from free.nodes_with(kind, size)


def _rematch(job: Job, free: Capacity, spread: Allocation, rule: Rule) -> Allocation:
    """The allocation's nodes, with the GPUs that the rule takes in each."""
    slices = []
    for part in spread.slices:
        node = free.cluster.index[part.node]
        topology = free.cluster.nodes[node].topology
        if topology is None:
            slices.append(part)
            continue
        choice = choose(
            topology,
            free.idle_mask(node),
            len(part.gpus),
            pattern_of(job),
            rule,
            sensitive=is_sensitive(job),
        )
        assert choice is not None
        slices.append(free.slice_of(node, choice.mask))
    return Allocation(tuple(slices))
