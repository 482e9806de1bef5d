"""Sizes of jobs that can run by several execution plans: the best plan of each rides along."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace

import numpy as np

from weft.core.knowledge.plans import Plans
from weft.core.model.execution import Execution
from weft.core.model.gang_nodes import count_large_nodes
from weft.core.model.job import Allocation, Config, Demand, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.pieces.place.whole_nodes import place_configs
from weft.pieces.size.configs import find_acceptable
from weft.pieces.wrap.restart_costs import seconds_left, speed_ratio

MARGIN = 2.0  # times what a restart costs must be saved by another plan


def place_plans(view: View, wanted: Mapping[int, Config], firm: Collection[int] = ()) -> Plan:
    """Every row on devices of the size it is to have, with the best plan there.

    A job that stays where it is changes its plan where that pays, unless it is one of `firm`.
    """
    changes = attach_plans(view, place_configs(view, wanted))
    better = find_better_plans(view, {*changes, *firm})
    changed = {view.job(row).id: on for row, on in {**changes, **better}.items()}
    return Plan(changed, reasons=explain_plans(view, better))


def overlay_plans(view: View, configs: tuple[Config, ...], goodput: Floats) -> tuple[Floats, Bools]:
    """Goodputs in which rows with plans have the best at each size, 0 where none runs; which."""
    plans, planned = view.knowledge.plans, np.zeros(len(view.table), dtype=np.bool_)
    if plans is None:
        return goodput, planned
    for row, job in enumerate(view.table.jobs):
        planned[row] = plans.knows(job)
    if planned.any():
        goodput = goodput.copy()
        for row in np.flatnonzero(planned).tolist():
            goodput[row] = best_rates(plans, view, row, configs)
    return goodput, planned


def best_rates(plans: Plans, view: View, row: int, configs: tuple[Config, ...]) -> Floats:
    """Samples per second of the best plan of a row at each size."""
    job = view.job(row)
    choices = (plans.choices(job, config) for config in configs)
    return np.array([best[0].rate if best else 0.0 for best in choices])


def planned_rates(view: View, configs: tuple[Config, ...]) -> tuple[Floats, Floats]:
    """Rows x sizes: samples per second of the best plan, 0 where it may not run; without plans.

    A row of which nothing is known runs on about as many GPUs as it asks for, and nowhere else.
    """
    goodput = view.believed().goodputs(view.table, configs)
    rates, planned = overlay_plans(view, configs, goodput)
    for row in np.flatnonzero(np.isnan(goodput[:, 0]) & ~planned).tolist():
        wish = _nearest(view.job(row).demand, configs)
        rates[row] = [float(config.gpus == wish) for config in configs]
    return np.where(find_fitting(view, configs), rates, 0.0), goodput


def _nearest(demand: Demand, configs: tuple[Config, ...]) -> int:
    """The most GPUs up to what is asked for that a size has, else the fewest above."""
    counts = {config.gpus for config in configs if demand.min <= config.gpus <= demand.max}
    below = [gpus for gpus in counts if gpus <= demand.gpus]
    return max(below) if below else min(counts, default=0)


def attach_plans(
    view: View, changes: Mapping[int, Allocation | None]
) -> dict[int, Allocation | None]:
    """The changes, each with the best plan there; only where a job declares several."""
    plans = view.knowledge.plans
    if plans is None:
        return dict(changes)
    return {row: on and _with_plan(plans, view, row, on) for row, on in changes.items()}


def _with_plan(plans: Plans, view: View, row: int, on: Allocation) -> Allocation:
    job = view.job(row)
    if not job.plans or not plans.knows(job):
        return on
    config = Config(view.cluster.kind_of(on), len(on.slices), on.gpus)
    choices = plans.choices(job, config)
    best: Execution | None = choices[0].plan if choices else None
    return replace(on, plan=best)


def find_better_plans(view: View, changed: Container[int]) -> dict[int, Allocation]:
    """Running rows that another plan on the same devices serves better, restart included."""
    plans, better = view.knowledge.plans, dict[int, Allocation]()
    rows = np.flatnonzero(view.running() & view.preemptible() & ~view.restoring()).tolist()
    rows = [row for row in rows if view.job(row).plans and row not in changed]
    if plans is None or not rows:
        return better
    left, cost = seconds_left(view), view.restart_seconds()
    for row in rows:
        job, on = view.job(row), view.allocation(row)
        assert on is not None
        now = on.plan or job.plans[0].on(on.gpus)
        choices = plans.choices(job, Config(view.cluster.kind_of(on), len(on.slices), on.gpus))
        rate = next((choice.rate for choice in choices if choice.plan == now), 0.0)
        if choices and rate and left[row] * (1.0 - rate / choices[0].rate) > MARGIN * cost[row]:
            better[row] = replace(on, plan=choices[0].plan)
    return better


def explain_plans(view: View, better: Mapping[int, Allocation]) -> dict[JobId, str]:
    """A sentence for each row that changes nothing but its plan."""
    return {view.job(row).id: _explain(view, row, to) for row, to in better.items()}


def _explain(view: View, row: int, to: Allocation) -> str:
    was = view.allocation(row)
    assert was is not None and to.plan is not None
    before = was.plan or view.job(row).plans[0].on(was.gpus)
    faster = 1.0 / speed_ratio(view, row, was, to, pooled=False)
    name = "its own" if before is None else before.text
    return f"plan {to.plan.text} instead of {name} on the same GPUs: {faster:.2f} times as fast"


def find_fitting(view: View, configs: tuple[Config, ...]) -> Bools:
    """Rows x sizes: which ones jobs take, on kinds that have the nodes they ask for."""
    gpus = np.array([float(config.gpus) for config in configs])
    fits = np.array([find_acceptable(job.demand, configs, gpus) for job in view.table.jobs])
    for row, job in enumerate(view.table.jobs):
        for kind in view.cluster.kinds if job.demand.nodes else ():
            nodes = [node for node in view.cluster.nodes if node.kind == kind]
            if count_large_nodes(job.demand, nodes) < job.demand.nodes:
                fits[row] &= [config.kind != kind for config in configs]
    return fits
