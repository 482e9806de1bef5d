"""The cost of changing a running job, and how long it would go on: as far as is known."""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Allocation, Config
from weft.core.plan.view import View
from weft.core.state.cells import Floats

TINY = 1e-9


def live_seconds(view: View) -> Floats:
    """Seconds until a row trains on other devices, made ready beside it; inf if it must restart."""
    seconds = np.full(len(view.table), np.inf)
    costs = view.knowledge.costs
    if costs is None:
        return seconds
    for row in np.flatnonzero(view.reported()).tolist():
        on = view.allocation(row)
        assert on is not None
        cost = costs.costs(view.job(row), view.cluster.kind_of(on))
        if cost.live:
            seconds[row] = cost.prepare_s + cost.pause_s + cost.pause_gb_s * cost.state_gb
    return seconds


def speed_ratio(view: View, row: int, was: Allocation, to: Allocation, *, pooled: bool) -> float:
    """A row's speed on what it holds, as a part of that on something else.

    By execution plans, of a job that has several; else as believed from its reports, or `pooled`
    from those of its model; else how kinds compare for such jobs, times the number of GPUs; where
    nothing is known about kinds, the number alone.
    """
    planned = [_planned_rate(view, row, on) for on in (was, to)]
    if all(planned):
        return planned[0] / planned[1]
    mask = np.zeros(len(view.table), dtype=bool)
    mask[row] = True
    table, kinds = view.table.pick(mask), [view.cluster.kind_of(on) for on in (was, to)]
    sizes = zip(kinds, (was, to), strict=True)
    configs = [Config(kind, len(on.slices), on.gpus) for kind, on in sizes]
    believed = view.pooled if pooled and view.pooled is not None else view.beliefs
    if believed is not None:
        before, after = believed.goodputs(table, configs)[0].tolist()
        if before > 0.0 and after > 0.0:
            return float(before / after)
    each = (1.0, 1.0)
    if view.pooled is not None and kinds[0] != kinds[1]:
        each = tuple(view.pooled.alone(table, kinds)[0].tolist())
    if not min(each) > 0.0:
        each = (1.0, 1.0)
    return each[0] * was.gpus / (each[1] * to.gpus)


def _planned_rate(view: View, row: int, on: Allocation) -> float:
    """Return a row's rate under its execution plan; 0 where it has none."""
    plans, job = view.knowledge.plans, view.job(row)
    if plans is None or not job.plans or not plans.knows(job):
        return 0.0
    plan = on.plan or job.plans[0].on(on.gpus)
    choices = plans.choices(job, Config(view.cluster.kind_of(on), len(on.slices), on.gpus))
    return next((choice.rate for choice in choices if choice.plan == plan), 0.0)


def seconds_left(view: View) -> Floats:
    """Seconds that each row may still run, at the pace it had: by its own progress, if it tells.

    Else what is predicted; as long as it has run where nothing is, or that time is over.
    """
    ran = view.ran()
    left = ran
    if view.knowledge.predictor is not None:
        remaining = view.remaining()
        left = np.where(np.isfinite(remaining) & (remaining > 0.0), remaining, ran)
    pooled = view.knowledge.pooled
    if pooled is None or not len(view.table):
        return left
    part = pooled.work_left(view.table, view.now) / pooled.work(view.table)
    begun = np.isfinite(part) & (part < 1.0)
    return np.where(begun, ran * part / np.maximum(1.0 - part, TINY), left)
