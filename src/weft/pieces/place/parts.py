"""Places by name: packed, spread, consolidated, in gaps, by skew or fragments, whole nodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from weft.core.model.job import Allocation, Config, Job
from weft.core.plan.about import About, Needs, Ties
from weft.core.plan.taxonomy import Knowledge, Preemption, Topology, declare
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.formulas.fragmentation import typical_classes
from weft.frozen import frozen
from weft.pieces.place.fragmentation import among_typical, place_by_fragments
from weft.pieces.place.gangs import Placer, consolidate, fewest_nodes, in_gaps, most_nodes
from weft.pieces.place.matching import Rule, match
from weft.pieces.place.resize import resize_all
from weft.pieces.place.whole_nodes import place_configs

FEW = declare(Topology.FEW_NODES)
TOGETHER = declare(Topology.CONSOLIDATED)
WAITS = "a gang waits for nodes of its own while smaller jobs fill them"


class OneByOne(ABC):
    """A place for one job after the other; who runs stays where it is."""

    __slots__ = ()
    moves = False
    reads_view: ClassVar[bool] = False

    @abstractmethod
    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Devices for one job."""

    def placer(self, view: View) -> Placer:  # noqa: ARG002 - what some places read
        """The same for all jobs of a decision."""
        return self.place

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """Rows of the same size stay; the others find a place, small ones first."""
        return assign_each(view, wanted, self.placer(view))


@frozen
class Packed(OneByOne):
    """On one node if it fits, else on as few nodes as there are now."""

    about = About("packed", "baseline", taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """The node that it fills best."""
        return fewest_nodes(job, free)


@frozen
class Spread(OneByOne):
    """On as many nodes as it can, one device of each in turn, the emptiest first."""

    about = About("spread", "baseline", taxonomy=declare(Topology.ANY_NODES))

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """What schedulers for services do, to bear the loss of a node."""
        return most_nodes(job, free)


@frozen
class Gaps(OneByOne):
    """On one node if it fits, else in the gaps: the fullest nodes first."""

    about = About("gaps", "Gu et al. 2019", taxonomy=declare(Topology.ANY_NODES))

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Leave empty nodes empty."""
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
        taxonomy=declare(Topology.CONSOLIDATED, Knowledge.MODELS),
    )

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """By the model that a job trains."""
        return by_skew(self.pack_limit)(job, free)


@frozen
class Beside(OneByOne):
    """A job keeps the devices it has and grows beside them; newcomers on as few nodes as can be."""

    about = About("beside", "Zhang et al. 2017", taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """A newcomer."""
        return fewest_nodes(job, free)

    def assign(self, view: View, wanted: Mapping[int, Config]) -> dict[int, Allocation | None]:
        """Who shrinks first, then who grows, as SLAQ does."""
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
        taxonomy=declare(Topology.LINKS, Knowledge.TRAFFIC),
    )

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """The best match of its pattern on the links between free GPUs."""
        return match(self.rule)(job, free)


@frozen
class LeastFragmented(OneByOne):
    """Where the idle GPUs that a typical job cannot use grow least; for parts of GPUs above all.

    Typical are the jobs that run or wait now.
    """

    about = About("fgd", "Weng et al. 2023", ties=Ties.NONE, taxonomy=FEW)

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """As if all jobs were like this one."""
        return place_by_fragments(job, free, typical_classes((job.demand,)))

    reads_view: ClassVar[bool] = True

    def placer(self, view: View) -> Placer:
        """By the jobs of the view."""
        return among_typical(view)


@frozen
class WholeNodes:
    """Inside a node or on whole nodes; who is in the way moves, the fewest GPUs first."""

    about = About(
        "whole-nodes",
        "Jayaram Subramanya et al. 2023",
        idles="a gang waits for whole nodes",
        taxonomy=declare(Topology.CONSOLIDATED, Preemption.MOVES),
    )
    moves = True
    reads_view: ClassVar[bool] = False

    def place(self, job: Job, free: Capacity) -> Allocation | None:
        """Alone, without moving anybody."""
        return consolidate(job, free)

    def placer(self, view: View) -> Placer:  # noqa: ARG002 - what some places read
        """The same for all jobs of a decision."""
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
