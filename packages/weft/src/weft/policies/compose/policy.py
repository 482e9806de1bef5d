"""A policy composed of named parts: which job goes first, how large, where, and with which others.

Paper       Agarwal et al., "Blox: A Modular Toolkit for Deep Learning Schedulers", EuroSys 2024,
            for the idea; every part comes from the policy that it is named after.
Objective   the order's; with `order=none` the size's.
Needs       what its parts need.
Controls    what its parts control.
Cost        the sum of its parts'.
Deviations  where sizes are chosen, the order decides which jobs take part: the first whose minimum
            sizes fit together. The size then treats those alike. Sizes are chosen again every
            `every` seconds (by default as often as the size's own policy does). A combination that
            makes no sense is refused with the reason. The order `gavel` knows how much time jobs
            had, not on which kinds: shares by kind and places are one decision in that policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from weft.core.errors import InvalidConfig, MakesNoSense
from weft.core.model.job import Allocation, Config
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Assumes, Controls, Needs, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.core.spec.registry import get_part
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.parts import Admit, NextDecision, Order, Part, Place, Share, Size, Sizes, follow
from weft.pieces.size.plans import attach_plans, find_better_plans

NO_ORDER, AS_ASKED, ALONE = "none", "asked", "alone"


@frozen
class ComposeMemory:
    """The memory of the order, and that of the size."""

    order: object = None
    size: object = None


@frozen
class Compose:
    """Any order, size, place, admission and sharing, combined by name.

    Parts are written with their parameters: `order=las:by=time`, in quotes where there are several
    (`order="las:by=time,quantum=60"`). Without `admit`, jobs start as in the policy that the order
    comes from. `every` is the length of a round in seconds; none: the size's own. `weft list part`
    shows all parts.
    """

    order: str = "fifo"
    size: str = "asked"
    place: str = "packed"
    admit: str = ""
    share: str = "alone"
    every: float | None = None

    def __post_init__(self) -> None:
        if self.every is not None and not self.every > 0.0:
            raise InvalidConfig(f"compose: every={self.every:g} must be above 0 seconds")
        self._joined()

    @property
    def about(self) -> About:
        """All that the parts say about themselves together."""
        about = self._joined().about
        return about if self.every is None else replace(about, every=self.every)

    def decide(self, view: View) -> Plan:
        """Rank; then start the first as they ask, or choose sizes and places for them."""
        parts = self._joined()
        return _decide_sizes(view, parts) if parts.sized else _decide_rigid(view, parts)

    def _joined(self) -> JoinedParts:
        return join_parts(self.order, self.size, self.place, self.admit, self.share)


def _decide_rigid(view: View, parts: JoinedParts) -> Plan:
    """Each job in the size it asks for, one after the other."""
    place = parts.place.placer(view)
    if not parts.shares and (plan := parts.order.settle(view, place)) is not None:
        return plan
    ranking = parts.order.rank(view)
    plan = parts.share.start(view, ranking, parts.admit, place)
    return follow(view, ranking, plan)


def _decide_sizes(view: View, parts: JoinedParts) -> Plan:
    """Decide which jobs take part, in which sizes, where."""
    if view.empty:
        return Plan()
    kept = recall(view, ComposeMemory)
    later, everybody = NextDecision(), np.ones(len(view.table), dtype=bool)
    if parts.chooses_by_size:
        sizes = parts.size.choose_sizes(replace(view, memory=kept.size))
        changes = parts.place.assign(view, sizes.wanted)
        running = everybody
    else:
        ranking = parts.order.rank(replace(view, memory=kept.order))
        chosen = parts.admit.among(view, ranking.rows)
        sizes = _choose_among(view, parts, chosen, kept.size)
        changes = parts.place.assign(view, sizes.wanted)
        running = _running(view, changes)
        if ranking.later is not None:
            rule = ranking.later
            later = rule if isinstance(rule, NextDecision) else rule(running)
    if Controls.PLAN in parts.size.about.controls:
        changes = _with_plans(view, changes)
    named = {view.job(row).id: on for row, on in changes.items()}
    return Plan(named, wake_at=later.wake_at, memory=ComposeMemory(later.memory, sizes.memory))


def _choose_among(view: View, parts: JoinedParts, chosen: Bools, memory: object) -> Sizes:
    """Sizes for the jobs that take part, as if the others had left."""
    mark = view.free.mark()
    for row in np.flatnonzero(~chosen & view.running()).tolist():
        if (on := view.allocation(row)) is not None:
            view.free.give(on)
    sizes = parts.size.choose_sizes(replace(view.restrict(chosen), memory=memory))
    view.free.rollback(mark)
    rows = np.flatnonzero(chosen).tolist()
    wanted: dict[int, Config] = {rows[row]: size for row, size in sizes.wanted.items()}
    return Sizes(wanted, sizes.memory)


def _with_plans(
    view: View, changes: Mapping[int, Allocation | None]
) -> dict[int, Allocation | None]:
    """Changes by the plans that the sizes count on; a job without one does not run."""
    plans, planned = view.knowledge.plans, attach_plans(view, changes)
    for row, on in planned.items():
        job = view.job(row)
        if on is not None and on.plan is None and job.plans and plans and plans.knows(job):
            planned[row] = None
    changed = {**planned, **find_better_plans(view, planned)}
    return {row: on for row, on in changed.items() if on != view.allocation(row)}


def _running(view: View, changes: dict[int, Allocation | None]) -> Bools:
    mask = view.running()
    for row, on in changes.items():
        mask[row] = on is not None
    return np.asarray(mask)


# ---- The parts of a composition: found by name, checked against each other, and what they are


@frozen
class JoinedParts:
    """Parts that go together, and what they say about themselves together."""

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
def join_parts(order: str, size: str, place: str, admit: str, share: str) -> JoinedParts:
    """The parts of these names; a combination that makes no sense is refused with the reason."""
    first: Order = get_part("order", order)
    large: Size = get_part("size", size)
    where: Place = get_part("place", place)
    start: Admit = get_part("admit", admit or first.admits)
    beside: Share = get_part("share", share)
    elastic = Controls.COUNT in large.about.controls
    parts = JoinedParts(
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


def _nonsense(parts: JoinedParts, *, elastic: bool, admit: str) -> str:
    """The reason why these parts do not go together; empty where they do."""
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
    """The first reason why a job may wait forever; with turns, none does."""
    if not admit.overtakes:
        return ""
    reasons = (order.about.starves, admit.about.starves, place.about.starves, size.about.starves)
    return next((reason for reason in reasons if reason), "")


def _taxonomy(order: Order, size: Size, place: Place, admit: Admit, share: Share) -> tax.Taxonomy:
    """Each question is answered by the part that decides it; knowledge is shared by all parts."""
    who, how, where = order.about.taxonomy, size.about.taxonomy, place.about.taxonomy
    known, preempts = tax.NeededKnowledge.NOTHING, tax.Preemption.NEVER
    for part in (order, size, place, admit, share):
        known |= part.about.taxonomy.knowledge or tax.NeededKnowledge.NOTHING
    for part in (size, place, admit):
        preempts |= part.about.taxonomy.preemption or tax.Preemption.NEVER
    return tax.classify(
        who.objective or how.objective or tax.Objective.IN_ORDER,
        known,
        preempts,
        how.heterogeneity or tax.Heterogeneity.ALIKE,
        how.elasticity or tax.Elasticity.RIGID,
        share.about.taxonomy.sharing or tax.DeviceSharing.EXCLUSIVE,
        where.topology or tax.TopologyKnowledge.ANY_NODES,
        who.fairness or how.fairness or tax.Fairness.NONE,
    )
