"""Where nothing is elastic: who runs is an order, and no program is needed.

All jobs have one size and there is one kind of GPU. The fewest GPU-seconds left go first, a start
counted for those who wait. That is looked at again when an estimate turns out wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import asks_for
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.pieces.order.plain_jobs import charged_service, find_plain
from weft.pieces.order.seconds_left import SecondsLeft, seconds_left
from weft.pieces.pack import pack, running_after
from weft.pieces.size.change_seconds import read_costs
from weft.pieces.size.configs import rigid_configs
from weft.policies.weft.values import find_goodputs

STEP = 3250.0  # GPU-seconds that what is guessed of a plain job is looked at in doublings of


def is_all_plain(view: View) -> bool:
    """Whether there is nothing to choose but who runs."""
    return len(view.cluster.kinds) == 1 and bool(find_plain(view).all())


def decide_plain(view: View, told: Collection[JobId], *, pooled: bool) -> Plan:
    """Those with the fewest GPU-seconds left run; who may not be stopped stays.

    `told` are jobs that know why they wait. The plan has no memory.
    """
    if not view.waiting().any():
        return Plan()
    left = seconds_left(view, _best_speeds(view, pooled=pooled), STEP)
    service = charged_service(view, left.seconds, read_costs(view))
    bound = view.running() & ~view.preemptible()
    plan = pack(view, view.ranked((~bound).astype(float), service))
    return replace(
        plan,
        wake_at=_next_look(view, plan, left),
        reasons=_explain(view, plan, left.seconds * view.table.need, told),
    )


def find_waiting(view: View, plan: Plan) -> tuple[JobId, ...]:
    """Who holds nothing after it."""
    rows = np.flatnonzero(~running_after(view, plan)).tolist()
    return tuple(view.job(row).id for row in rows)


def _best_speeds(view: View, *, pooled: bool) -> Floats:
    """Samples a second on the size of each row, where anybody's work is known."""
    known = view.pooled is not None and np.isfinite(view.pooled.work_left(view.table, view.now))
    if not np.any(known):
        return np.ones(len(view.table))
    goodput = find_goodputs(view, rigid_configs(view, ()), pooled=pooled, shape=1.0)
    best: Floats = goodput.max(axis=1)
    return best


def _next_look(view: View, plan: Plan, left: SecondsLeft) -> float | None:
    """When the first estimate of a running job no longer holds; None if nobody waits for that."""
    running = running_after(view, plan)
    soonest = float(left.lasts[running].min(initial=np.inf))
    if running.all() or not np.isfinite(soonest):
        return None
    return view.now + max(soonest, 1e-6)


def _explain(view: View, plan: Plan, service: Floats, told: Collection[JobId]) -> dict[JobId, str]:
    """A sentence for whoever starts or stops, has begun to wait, or is asked about."""
    after = running_after(view, plan)
    names = {*find_waiting(view, plan)} - {*told} | {*plan.changes, *view.asked}
    rows = sorted(row for name in names if (row := view.table.find(name)) is not None)
    most = float(service[after].max(initial=0.0))
    return {view.job(row).id: _say(view, row, bool(after[row]), service, most) for row in rows}


def _say(view: View, row: int, runs: bool, service: Floats, most: float) -> str:
    left = f"{service[row]:,.0f} GPU-seconds are thought to be left"
    if runs:
        return f"{'runs' if view.table.held[row] else 'starts'}: {left}"
    demand = view.job(row).demand
    size = asks_for(demand.gpus, share=demand.share, nodes=demand.nodes)
    return f"waits for {size}: {left}, at most {most:,.0f} of those that run"
