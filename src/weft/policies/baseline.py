"""What baselines have in common: who goes first is theirs, where jobs go is a part by name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from weft.core.errors import InvalidConfig
from weft.core.plan.about import About, may_idle
from weft.core.plan.taxonomy import (
    Elasticity,
    Fairness,
    Heterogeneity,
    Knowledge,
    Objective,
    Preemption,
    Sharing,
    Taxonomy,
    Topology,
)
from weft.core.spec.registry import get_part
from weft.pieces.parts import Place
from weft.pieces.place.gangs import Placer


def stand(objective: Objective, knowledge: Knowledge, preemption: Preemption) -> Taxonomy:
    """Where baselines stand: rigid jobs on devices of their own, kinds alike."""
    return Taxonomy(
        objective=objective,
        knowledge=knowledge,
        heterogeneity=Heterogeneity.ALIKE,
        elasticity=Elasticity.RIGID,
        sharing=Sharing.EXCLUSIVE,
        topology=Topology.FEW_NODES,
        fairness=Fairness.NONE,
        preemption=preemption,
    )


@cache
def placer(who: str, name: str) -> Placer:
    """The place of that name, for one job after the other."""
    part: Place = get_part("place", name)
    if part.moves:
        raise InvalidConfig(
            f"{who}: place={name} places all jobs together and moves some of them",
            hint=f"compose:order={who},place={name} does that",
        )
    return part.place


def add_place(about: About, name: str, *, overtaking: bool = True) -> About:
    """The same with jobs placed so; who may be overtaken may wait for its place for ever."""
    if name == "packed":
        return about
    part: Place = get_part("place", name)
    brought = part.about.taxonomy
    nothing = Knowledge.NOTHING
    knowledge = (about.taxonomy.knowledge or nothing) | (brought.knowledge or nothing)
    topology = about.taxonomy.topology if brought.topology is None else brought.topology
    return replace(
        may_idle(about, part.about.idles),
        needs=about.needs | part.about.needs,
        ties=part.about.ties,
        starves=about.starves or (part.about.starves if overtaking else ""),
        taxonomy=replace(about.taxonomy, topology=topology, knowledge=knowledge),
    )
