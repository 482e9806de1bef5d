"""Sizes of jobs that can run by several execution plans: the best plan of each rides along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.core.knowledge.plans import Plans
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Config
from weft.core.plan.view import View
from weft.core.state.table import Floats


def find_planned(view: View) -> tuple[Plans, list[int]] | None:
    """What is known of plans, and the rows that have any; None where there are none."""
    plans = view.knowledge.plans
    if plans is None:
        return None
    rows = [row for row, job in enumerate(view.table.jobs) if plans.knows(job)]
    return (plans, rows) if rows else None


def with_plans(view: View, configs: tuple[Config, ...], goodput: Floats) -> Floats:
    """Goodputs in which rows with plans have the best at each size; 0 where none runs."""
    found = find_planned(view)
    if found is None:
        return goodput
    plans, rows = found
    goodput = goodput.copy()
    for row in rows:
        goodput[row] = best_rates(plans, view, row, configs)
    return goodput


def best_rates(plans: Plans, view: View, row: int, configs: tuple[Config, ...]) -> Floats:
    """Samples per second of the best plan of a row at each size."""
    job = view.job(row)
    choices = (plans.choices(job, config) for config in configs)
    return np.array([found[0].rate if found else 0.0 for found in choices])


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
    found = plans.choices(job, config)
    best: Execution | None = found[0].plan if found else None
    return replace(on, plan=best)
