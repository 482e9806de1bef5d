"""Base of baselines: each has its own order, and places jobs by a part with a name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import ClassVar

from weft.core.errors import InvalidConfig
from weft.core.model.job import Job
from weft.core.plan.about import About, Needs, may_idle
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.spec.registry import get_part
from weft.core.state.capacity import Capacity
from weft.frozen import frozen
from weft.pieces.pack import start_if_fits
from weft.pieces.parts import Admit, Order, Place, run_order


@frozen
class Baseline:
    """One `order` of jobs, how they are admitted, and a place by name.

    `packed` is what the policy is without another place.
    """

    place: str = "packed"
    packed: ClassVar[About]
    order: ClassVar[Order]
    admit: ClassVar[Admit]

    def __post_init__(self) -> None:
        find_place(self.packed.name, self.place)

    @property
    def about(self) -> About:
        """A place may need to know more."""
        return add_place(self.packed, self.place)

    def fast_start(self, job: Job, free: Capacity, now: float) -> Plan | None:  # noqa: ARG002 - at any time
        """A lone job that fits starts; no order is needed."""
        return start_at_place(find_place(self.packed.name, self.place), job, free)

    def decide(self, view: View) -> Plan:
        """Rank by the order, then start the admitted jobs."""
        place = find_place(self.packed.name, self.place).placer(view)
        return run_order(view, self.order, self.admit, place)


def short_first(
    name: str,
    origin: str,
    overtaken_by: str,
    preemption: Preemption,
    knowledge: NeededKnowledge = NeededKnowledge.DURATIONS,
    idles: str = "",
) -> About:
    """The `About` of a policy that lets the jobs with least left go first, as predicted."""
    taxonomy = classify(Objective.COMPLETION_TIME, knowledge, preemption)
    starves = f"a stream of {overtaken_by} jobs"
    return About(name, origin, Needs.REMAINING, starves=starves, taxonomy=taxonomy, idles=idles)


def start_at_place(place: Place, job: Job, free: Capacity) -> Plan | None:
    """Start a lone newcomer there; None where its place depends on more."""
    return None if place.reads_view else start_if_fits(job, free, place.place)


@cache
def find_place(who: str, name: str) -> Place:
    """The place of that name, for one job after the other."""
    part: Place = get_part("place", name)
    if part.moves:
        raise InvalidConfig(
            f"{who}: place={name} places all jobs together and moves some of them",
            hint=f"compose:order={who},place={name} does that",
        )
    return part


@cache
def add_place(about: About, name: str, *, overtaking: bool = True) -> About:
    """An `About` with jobs placed so.

    A job that may be overtaken may wait for its place forever.
    """
    if name == "packed":
        return about
    part: Place = get_part("place", name)
    brought = part.about.taxonomy
    nothing = NeededKnowledge.NOTHING
    knowledge = (about.taxonomy.knowledge or nothing) | (brought.knowledge or nothing)
    topology = about.taxonomy.topology if brought.topology is None else brought.topology
    return replace(
        may_idle(about, part.about.idles),
        needs=about.needs | part.about.needs,
        ties=part.about.ties,
        starves=about.starves or (part.about.starves if overtaking else ""),
        taxonomy=replace(about.taxonomy, topology=topology, knowledge=knowledge),
    )
