"""Decisions where nothing is elastic: an order decides, and no program is needed.

All jobs have one size and there is one kind of GPU. The job that needs the fewest GPU-seconds for
one more end goes first, a start counted for waiting jobs; a gang that small ones keep out goes
before all of them where more jobs end by that. A job that has waited many times as long as it ran
goes first for a while: predictions err, and a short job that is taken for a long one must not wait
for all others. All this is looked at again when an estimate turns out wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.core.model.job import Allocation, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.pieces.fit import fit
from weft.pieces.order.plain_left import (
    LEAST_S,
    LengthEstimates,
    PlainLeft,
    charged_service,
    find_patience,
    find_plain,
    next_rise,
    plain_left,
)
from weft.pieces.pack import pack, running_after, start_all
from weft.pieces.size.change_seconds import read_costs
from weft.pieces.size.choice_reasons import clear_reasons, gave_way, say_gave_way
from weft.pieces.size.configs import rigid_configs
from weft.policies.weft.values import find_goodputs

PAUSE_S = 10.0  # between looks for late jobs
EPS_S = 1e-3
NOBODY: Floats = np.zeros(0)


def is_all_plain(view: View) -> bool:
    """True if there is nothing to choose but which jobs run."""
    return len(view.cluster.kinds) == 1 and bool(find_plain(view).all())


def decide_plain(
    view: View, explained: Floats, before: LengthEstimates, *, pooled: bool
) -> tuple[Plan, LengthEstimates, Floats]:
    """Run jobs that end soonest for the GPUs they take; jobs that may not be stopped stay.

    `explained` are the numbers of jobs that waited before. The plan has no memory; estimates and
    the numbers of jobs that wait from now on are to be kept.
    """
    if not view.table.waiting:
        return Plan(), before, NOBODY
    if not view.asked and (plan := start_all(view)) is not None:
        return plan, before, NOBODY
    left = plain_left(view, _known_seconds(view, pooled=pooled), before)
    service = charged_service(view, left.seconds, read_costs(view))
    waited, patience = view.waited(), find_patience(view)
    first = LEAST_S * patience / np.maximum(waited, LEAST_S)
    late: Bools = waited >= patience - EPS_S
    service = np.where(late, first, service)
    bound = view.running() & ~view.preemptible()
    order = view.ranked((~bound).astype(float), (~late).astype(float), service)
    rate = view.table.need / np.maximum(service, 1e-9)
    order, chosen = raise_gang(view, order, rate, int((bound | late).sum()))
    plan = pack(view, order, late=late, chosen=chosen)
    after = running_after(view, plan)
    rows = {view.table.row(name): to for name, to in plan.changes.items()}
    reasons = _explain(view, rows, after, left.seconds * view.table.need, explained)
    late_in = np.where(late, _overtake_in(waited, patience, late & after), patience - waited)
    wake_at = _next_look(view, after, service, left, late_in)
    plan = Plan(plan.changes, wake_at=wake_at, reasons=reasons, blockers=gave_way(view, rows))
    return plan, left.estimates, view.table.seq[~after]


def _known_seconds(view: View, *, pooled: bool) -> Floats:
    """Seconds left on the size of each row by its own reports; NaN where it tells nothing."""
    if view.pooled is None:
        return np.full(len(view.table), np.nan)
    work = view.pooled.work_left(view.table, view.now)
    if not np.isfinite(work).any():
        return work
    goodput = find_goodputs(view, rigid_configs(view, ()), pooled=pooled, shape=1.0)
    seconds: Floats = work / np.maximum(goodput.max(axis=1), 1e-12)
    return seconds


def _next_look(
    view: View, running: Bools, service: Floats, left: PlainLeft, late_in: Floats
) -> float | None:
    """The time at which a running job is thought to need more than one that waits, or one is late.

    `late_in` are the seconds until it is, or until it is the later one.
    """
    if running.all():
        return None
    above = float(service[~running].min()) / np.maximum(view.table.need, 1e-9)
    soonest = next_rise(view, left, running & view.preemptible(), above)
    until = late_in[~running & (late_in > 0.0)]
    soonest = min(soonest, max(float(until.min(initial=np.inf)), PAUSE_S))
    return view.now + max(soonest, 1e-6) if np.isfinite(soonest) else None


def _overtake_in(waited: Floats, patience: Floats, running: Bools) -> Floats:
    """Seconds that each row has to wait before it goes before one of those late ones that run."""
    least = float((waited / patience)[running].min(initial=np.inf))
    seconds: Floats = least * patience - waited + EPS_S
    return seconds


def _explain(
    view: View,
    rows: Mapping[int, Allocation | None],
    after: Bools,
    service: Floats,
    explained: Floats,
) -> dict[JobId, str]:
    """Jobs that take the devices of jobs that stop; and figures for the jobs asked about."""
    reasons = clear_reasons(view, ~after, explained) | say_gave_way(view, rows)
    most = float(service[after].max(initial=0.0))
    for name in view.asked:
        if (row := view.table.find(name)) is not None:
            left = f"{service[row]:,.0f} GPU-seconds are thought to be left"
            reasons[name] = left if after[row] else f"{left}, at most {most:,.0f} of those that run"
    return reasons


# ---- A gang that small jobs keep out: whether it should run before them all
#
# Taken in order, a gang is skipped while any job before it runs, and what is left goes to
# jobs behind it. Among sets that fit together the one that ends more jobs per second is better.


TRIED = 8  # gangs that were skipped, the first ones
GAIN = 1.02  # times as many ends a second that are worth a change of the order


def raise_gang(view: View, order: Rows, rate: Floats, stays: int) -> tuple[Rows, Bools]:
    """The order, with that gang behind the first `stays` with which most jobs end, if that gains.

    `rate` are ends a second of each row while it runs. With the order comes which rows of it fit.
    """
    chosen = fit(view, order)
    if chosen.all() or not chosen.any():
        return order, chosen
    ends = rate[order]
    best, raised = GAIN * float(ends[chosen].sum()), (order, chosen)
    last = int(np.flatnonzero(chosen)[-1])
    for at in (stays + np.flatnonzero(~chosen[stays:last]))[:TRIED].tolist():
        trial = _raise(order, at, stays)
        fits = fit(view, trial)
        more = float(rate[trial[fits]].sum())
        if more > best:
            best, raised = more, (trial, fits)
    return raised


def _raise(order: Rows, at: int, to: int) -> Rows:
    """The order with one moved forward."""
    moved = order.copy()
    moved[to], moved[to + 1 : at + 1] = order[at], order[to:at]
    return moved
