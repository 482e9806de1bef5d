"""Places by name: packed, spread, consolidated, in gaps, by skew or fragments, whole nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np

from weft.core.model.job import Allocation, Config, Demand, Job, Sharing
from weft.core.plan.about import About, Needs, Ties
from weft.core.plan.taxonomy import NeededKnowledge, Preemption, TopologyKnowledge, declare
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.formulas.fragmentation import (
    EPS,
    JobClass,
    classes_on,
    fragments,
    score_change,
    typical_classes,
)
from weft.frozen import frozen
from weft.pieces.place.gangs import (
    Placer,
    acceptable,
    consolidate,
    fewest_nodes,
    in_gaps,
    most_nodes,
)
from weft.pieces.place.matching import Rule, match
from weft.pieces.place.resize import resize_all
from weft.pieces.place.whole_nodes import place_configs

FEW = declare(TopologyKnowledge.FEW_NODES)
TOGETHER = declare(TopologyKnowledge.CONSOLIDATED)
WAITS = "a gang waits for nodes of its own while smaller jobs fill them"


class OneByOne(ABC):
    """A place for one job after the other; running jobs stay where they are."""

    __slots__ = ()
    moves = False
    reads_view: ClassVar[bool] = False

    @abstractmethod
    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Devices for one job."""

    def placer(self, view: View) -> Placer:  # noqa: ARG002 - what some places read
        return self.place

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """Rows of the same size stay; the others find a place, small ones first."""
        return assign_each(view, wanted, self.placer(view))


@frozen
class PackedPlace(OneByOne):
    """On one node if it fits, else on as few nodes as there are now."""

    about = About("packed", "baseline", taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """The node that it fills best."""
        return fewest_nodes(job, free)


@frozen
class Spread(OneByOne):
    """On as many nodes as it can, one device of each in turn, the emptiest first."""

    about = About("spread", "baseline", taxonomy=declare(TopologyKnowledge.ANY_NODES))

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Spread over nodes, as schedulers for services do, to bear the loss of one."""
        return most_nodes(job, free)


@frozen
class Gaps(OneByOne):
    """On one node if it fits, else in the gaps: the fullest nodes first."""

    about = About("gaps", "Gu et al. 2019", taxonomy=declare(TopologyKnowledge.ANY_NODES))

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        return in_gaps(job, free)


@frozen
class Consolidated(OneByOne):
    """On the least number of nodes an empty cluster would need, or not at all."""

    about = About("consolidated", "Zhao et al. 2022", starves=WAITS, idles=WAITS, taxonomy=TOGETHER)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Gangs wait for nodes of their own."""
        return consolidate(job, free)


@frozen
class Skewed(OneByOne):
    """Consolidate models whose largest tensor is above `pack_limit` of all; others fill gaps."""

    pack_limit: float = 0.25

    about = About(
        "tiresias",
        "Gu et al. 2019",
        needs=Needs.MODEL,
        starves=WAITS,
        idles=WAITS,
        taxonomy=declare(TopologyKnowledge.CONSOLIDATED, NeededKnowledge.MODELS),
    )

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Place a job by the model that it trains."""
        return by_skew(self.pack_limit)(job, free)


@frozen
class Beside(OneByOne):
    """A job keeps the devices it has and grows beside them; newcomers on as few nodes as can be."""

    about = About("beside", "Zhang et al. 2017", taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        return fewest_nodes(job, free)

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """Jobs that shrink first, then those that grow, as SLAQ does."""
        counts = {row: size.gpus for row, size in wanted.items()}
        plan = resize_all(view, counts, {row: size.kind for row, size in wanted.items()})
        return {view.table.row(job): on for job, on in plan.changes.items()}


@frozen
class Matched(OneByOne):
    """On the free GPUs of a node whose links match how the job communicates.

    `rule` is preserve, greedy, socket or lowest, as in the policy `mapa`.
    """

    rule: Rule = "preserve"

    about = About(
        "mapa",
        "Ranganath et al. 2021",
        ties=Ties.NONE,
        taxonomy=declare(TopologyKnowledge.LINKS, NeededKnowledge.TRAFFIC),
    )

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """The best match of its pattern on the links between free GPUs."""
        return match(self.rule)(job, free)


@frozen
class LeastFragmented(OneByOne):
    """Placement where the idle GPUs that a typical job cannot use grow least.

    Typical are the jobs that run or wait now.
    """

    about = About("fgd", "Weng et al. 2023", ties=Ties.NONE, taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        return place_by_fragments(job, free, typical_classes((job.demand,)))

    reads_view: ClassVar[bool] = True

    def placer(self, view: View) -> Placer:
        return among_typical(view)


@frozen
class WholeNodes:
    """Inside a node or on whole nodes; jobs in the way move, the fewest GPUs first."""

    about = About(
        "whole-nodes",
        "Jayaram Subramanya et al. 2023",
        idles="a gang waits for whole nodes",
        taxonomy=declare(TopologyKnowledge.CONSOLIDATED, Preemption.MOVES),
    )
    moves = True
    reads_view: ClassVar[bool] = False

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Alone, without moving any job."""
        return consolidate(job, free)

    def placer(self, view: View) -> Placer:  # noqa: ARG002 - what some places read
        return self.place

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """All together, as Sia does."""
        return place_configs(view, wanted)


def assign_each(
    view: View, wanted: Mapping[int, Config], place: Placer
) -> dict[int, Allocation | None]:
    """Places for the rows whose size changed, small ones first; the others stay."""
    changes: dict[int, Allocation | None] = {}
    moving: list[int] = []
    for row, on in enumerate(view.table.allocations):
        size = wanted.get(row)
        stays = on is not None and size is not None and _holds(view, on, size)
        if on is not None and not stays:
            view.free.give(on)
            changes[row] = None
        if size is not None and not stays:
            moving.append(row)
    for row in sorted(moving, key=lambda row: (wanted[row].gpus, row)):
        size, job = wanted[row], view.job(row)
        demand = replace(job.demand, gpus=size.gpus, kinds=(size.kind,))
        if (on := place(replace(job, demand=demand), view.free)) is not None:
            view.free.take(on)
            changes[row] = on
    return changes


def _holds(view: View, on: Allocation, size: Config) -> bool:
    return on.gpus == size.gpus and view.cluster.kind_of(on) == size.kind


# Consolidate only the models that need it (Tiresias, NSDI 2019).
#
# A model whose largest tensor is a large part of the whole suffers when its gang is spread; the
# others may fill the gaps.

# Largest tensor over all tensors, from the sizes published with the Tiresias simulator.
SKEW = {
    "vgg11": 0.774,
    "vgg16": 0.744,
    "vgg19": 0.717,
    "alexnet": 0.611,
    "inception3": 0.138,
    "resnet50": 0.112,
    "resnet101": 0.075,
    "resnet152": 0.060,
    "inception4": 0.044,
}


def skew_of(job: Job) -> float:
    """The job's hint `skew`, else its model's, else 0: an unknown model is not held up."""
    return job.hints.get("skew", SKEW.get(job.model.lower(), 0.0))


def by_skew(limit: float) -> Placer:
    """Consolidate models with a skew above `limit`, let the others fill the gaps."""

    def place(job: Job, free: Capacity) -> Allocation | None:
        return consolidate(job, free) if skew_of(job) > limit else in_gaps(job, free)

    return place


# ---- Places that leave the least fragmented: fragmentation gradient descent (Weng et al., ATC
# 2023)
#
# Among the nodes that a job fits on it goes where the idle GPUs that a typical job could not
# use grow least. The typical jobs are those that are here now, running or waiting: the
# published experiments know the mix of the whole trace, jobs still to come included. Hosts are
# divided in proportion to GPUs, so cores do not run out before them. Gangs too large for a node
# take the fewest nodes.


NO_ROOM = -1


def among_typical(view: View) -> Placer:
    """A placer by the jobs of a view; they are counted when the first one is placed."""

    @cache
    def classes() -> tuple[JobClass, ...]:
        return typical_classes(job.demand for job in view.table.jobs)

    return lambda job, free: place_by_fragments(job, free, classes())


def place_by_fragments(job: Job, free: Capacity, classes: Sequence[JobClass]) -> Allocation | None:
    """The node that it fragments least, the first of equals in the cluster's order."""
    demand = job.demand
    if demand.nodes or (demand.share < 1.0 and demand.gpus > 1):
        return fewest_nodes(job, free)
    best, where, device = NO_ROOM, 0, 0
    for kind in acceptable(job, free):
        for size, nodes in _nodes(free, kind, demand).items():
            left = np.array([_left(free, node, size) for node in nodes])
            scores, devices = score_nodes(left, demand, classes_on(classes, kind, size))
            top = int(scores.argmax())
            if (int(scores[top]), -nodes[top]) > (best, -where):
                best, where, device = int(scores[top]), nodes[top], int(devices[top])
    if best == NO_ROOM:
        return fewest_nodes(job, free) if demand.share == 1.0 else None
    if demand.share == 1.0:
        return Allocation((free.slice(where, demand.gpus),))
    part = free.slice_of(where, 1 << device, demand.share)
    return Allocation((part,), Sharing(share=demand.share))


def score_nodes(
    left: Floats,
    demand: Demand,
    classes: Sequence[JobClass],
    cpus: Floats | None = None,
    taken: float = 0.0,
) -> tuple[Rows, Rows]:
    """A score and a device for each node of one kind, a row of `left` each; -1: it does not fit.

    A job with a part of a GPU tries each device, and the first of the best is its; whole GPUs are
    the first free ones. `cpus` are idle cores, of which it takes that many.
    """
    before = fragments(left, classes, cpus)
    less = None if cpus is None else cpus - taken
    if demand.share == 1.0:
        whole = left >= 1.0 - EPS
        first = whole & (whole.cumsum(axis=1) <= demand.gpus)
        after = fragments(np.where(first, 0.0, left), classes, less)
        fits = whole.sum(axis=1) >= demand.gpus
        return np.where(fits, score_change(before, after), NO_ROOM), np.zeros(len(left), np.intp)
    count, size = left.shape
    tries = np.repeat(left, size, axis=0)
    tries[np.arange(count * size), np.tile(np.arange(size), count)] -= demand.share
    after = fragments(tries.clip(min=0.0), classes, None if less is None else less.repeat(size))
    scores = score_change(before.repeat(size), after).reshape(count, size)
    scores = np.where(left >= demand.share - EPS, scores, NO_ROOM)
    return scores.max(axis=1), scores.argmax(axis=1)


def _nodes(free: Capacity, kind: str, demand: Demand) -> dict[int, list[int]]:
    """Nodes by size; of those alike, without shared devices, only the first."""
    by_gpus: dict[int, list[int]] = defaultdict(list)
    for node in sorted(_differing(free, kind, demand)):
        by_gpus[free.cluster.nodes[node].gpus].append(node)
    return by_gpus


def _differing(free: Capacity, kind: str, demand: Demand) -> Iterator[int]:
    shared = {node for node, _ in free.with_room(kind, 0.0)}
    least = demand.gpus if demand.share == 1.0 else 1
    seen: set[tuple[int, int]] = set()
    if demand.share < 1.0:
        yield from (node for node in shared if not free.on(node))
    for count in range(least, free.cluster.node_size(kind) + 1):
        for node in free.nodes_with(kind, count):
            alike = (free.cluster.nodes[node].gpus, count)
            if node in shared or alike not in seen:
                yield node
            if node not in shared:
                seen.add(alike)


def _left(free: Capacity, node: int, size: int) -> list[float]:
    return [1.0 - free.claimed(node, gpu) for gpu in range(size)]
