"""A plan carried out in the ledger, on trial."""

from __future__ import annotations

from collections.abc import Iterable

from weft.core.errors import PlanError
from weft.core.model.job import Allocation, NodeId, Tier
from weft.core.plan.plan import Plan
from weft.core.plan.view import View


def fits(view: View, plan: Plan) -> bool:
    """Whether the ledger has all that a plan promises, and no job joins one that does not share.

    For plans of a policy that was shown a part of what runs: one that counts machines instead
    of what is free may promise what hidden jobs hold.
    """
    if _joins_who_shares_nothing(view, plan):
        return False
    mark = view.free.mark()
    try:
        return carry_out(view, plan)
    finally:
        view.free.rollback(mark)


def _joins_who_shares_nothing(view: View, plan: Plan) -> bool:
    """Whether an opportunistic job goes beside a hidden one; others find no room there."""
    loose = [to for to in plan.changes.values() if to and to.sharing.tier is Tier.OPPORTUNISTIC]
    if not loose:
        return False
    hidden = [on for job, _, on in view.held_out_of_sight() if not job.shareable]
    return not devices_of(loose).isdisjoint(devices_of(hidden))


def devices_of(allocations: Iterable[Allocation]) -> set[tuple[NodeId, int]]:
    """Every device that one of these is on."""
    return {(part.node, gpu) for on in allocations for part in on.slices for gpu in part.gpus}


def carry_out(view: View, plan: Plan) -> bool:
    """Change the view's ledger as the plan says; False where that cannot be done."""
    view.release(plan.changes)
    try:
        for to in plan.changes.values():
            if to is not None:
                view.free.take(to)
    except PlanError:
        return False
    return True
