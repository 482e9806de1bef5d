"""A plan carried out in the ledger, on trial."""

from __future__ import annotations

from weft.core.errors import PlanError
from weft.core.plan.plan import Plan
from weft.core.plan.view import View


def fits(view: View, plan: Plan) -> bool:
    """Whether the ledger has all that a plan promises.

    For plans of a policy that was shown a part of what runs: one that counts machines instead
    of what is free may promise what hidden jobs hold.
    """
    mark = view.free.mark()
    try:
        return carry_out(view, plan)
    finally:
        view.free.rollback(mark)


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
