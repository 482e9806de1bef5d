"""The parts of a composition: found by name, checked against each other, and what they are."""

from __future__ import annotations

from functools import cache

from weft.core.errors import MakesNoSense
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Assumes, Controls, Needs, Ties
from weft.core.spec.registry import get_part
from weft.frozen import frozen
from weft.pieces.parts import Admit, Order, Part, Place, Share, Size

NO_ORDER, AS_ASKED, ALONE = "none", "asked", "alone"


@frozen
class Joined:
    """Parts that go together, and what they say of themselves together."""

    order: Order
    size: Size
    place: Place
    admit: Admit
    share: Share
    about: About
    sized: bool  # sizes and places are chosen for all together
    chooses_by_size: bool  # no order
    shares: bool


@cache
def join_parts(order: str, size: str, place: str, admit: str, share: str) -> Joined:
    """The parts of these names; a combination that makes no sense is refused with the reason."""
    first: Order = get_part("order", order)
    large: Size = get_part("size", size)
    where: Place = get_part("place", place)
    start: Admit = get_part("admit", admit or first.admits)
    beside: Share = get_part("share", share)
    elastic = Controls.COUNT in large.about.controls
    parts = Joined(
        first,
        large,
        where,
        start,
        beside,
        _about(first, large, where, start, beside),
        sized=elastic or where.moves,
        chooses_by_size=first.about.name == NO_ORDER,
        shares=beside.about.name != ALONE,
    )
    if reason := _nonsense(parts, elastic=elastic, admit=admit):
        raise MakesNoSense(f"compose: {reason}", hint="`weft list part` shows all parts")
    return parts


def _nonsense(parts: Joined, *, elastic: bool, admit: str) -> str:
    """Why these parts do not go together; empty where they do."""
    size, place = f"size={parts.size.about.name}", f"place={parts.place.about.name}"
    start, share = f"admit={parts.admit.about.name}", f"share={parts.share.about.name}"
    stops, under = parts.admit.stops, parts.share.with_stops
    wanted = "an admission that stops jobs" if under else "an admission that stops no job"
    checks = (
        (
            parts.chooses_by_size and not elastic,
            f"order=none leaves the choice to the size, and {size} makes none",
        ),
        (
            parts.chooses_by_size and bool(admit),
            f"order=none ranks no jobs, so {start} has none to start",
        ),
        (
            elastic and parts.size.stops and not stops,
            f"{size} may leave running jobs without GPUs, but {start} stops no job",
        ),
        (
            parts.place.moves and not stops,
            f"{place} moves running jobs to make room, but {start} stops no job",
        ),
        (
            parts.shares and parts.sized,
            f"{share} needs jobs that keep their size and devices, unlike "
            f"{size if elastic else place}",
        ),
        (under is not None and under != stops, f"{share} needs {wanted}, unlike {start}"),
    )
    return next((reason for wrong, reason in checks if wrong), "")


def _about(order: Order, size: Size, place: Place, admit: Admit, share: Share) -> About:
    every: tuple[Part, ...] = (order, size, place, admit, share)
    needs, controls, assumes = Needs.NOTHING, Controls.NOTHING, Assumes.NOTHING
    for part in every:
        needs |= part.about.needs
        controls |= part.about.controls
        assumes |= part.about.assumes
    exact = any(part.about.ties is Ties.NONE for part in every)
    return About(
        "compose",
        "Agarwal et al. 2024",
        needs=needs,
        controls=controls,
        every=size.about.every,
        starves=_starves(order, size, place, admit),
        assumes=assumes,
        idles="; ".join(dict.fromkeys(p.about.idles for p in every if p.about.idles)),
        ties=Ties.NONE if exact else Ties.NODES,
        taxonomy=_taxonomy(order, size, place, admit, share),
    )


def _starves(order: Order, size: Size, place: Place, admit: Admit) -> str:
    """The first reason why a job may wait for ever; with turns, none does."""
    if not admit.overtakes:
        return ""
    reasons = (order.about.starves, admit.about.starves, place.about.starves, size.about.starves)
    return next((reason for reason in reasons if reason), "")


def _taxonomy(order: Order, size: Size, place: Place, admit: Admit, share: Share) -> tax.Taxonomy:
    """Each question is answered by the part that decides it; knowledge is shared by all parts."""
    who, how, where = order.about.taxonomy, size.about.taxonomy, place.about.taxonomy
    known, preempts = tax.Knowledge.NOTHING, tax.Preemption.NEVER
    for part in (order, size, place, admit, share):
        known |= part.about.taxonomy.knowledge or tax.Knowledge.NOTHING
    for part in (size, place, admit):
        preempts |= part.about.taxonomy.preemption or tax.Preemption.NEVER
    return tax.classify(
        who.objective or how.objective or tax.Objective.IN_ORDER,
        known,
        preempts,
        how.heterogeneity or tax.Heterogeneity.ALIKE,
        how.elasticity or tax.Elasticity.RIGID,
        share.about.taxonomy.sharing or tax.Sharing.EXCLUSIVE,
        where.topology or tax.Topology.ANY_NODES,
        who.fairness or how.fairness or tax.Fairness.NONE,
    )
