"""From a view to a problem: speeds, work left and time alone, as far as the scheduler knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft_papers.gavel.accounts import UnitAccounts
from weft_papers.gavel.objectives import compute_isolated
from weft_papers.gavel.problem import NO_PAIRS, AllocationProblem, SharedPairs

Fair = dict[str, tuple[float, float, float]]
ORDER = ("v100", "p100", "k80")  # as the authors' code visits them
UNKNOWN_S = 3600.0  # work left of a job that nothing is known about


def read_problem(
    view: View, kinds: Sequence[str], gpus: Floats, *, packed: bool
) -> AllocationProblem:
    """The jobs of a view with their speeds; priority 0 weighs 1."""
    table = view.table
    rates = _rates(view, kinds)
    rates[table.need[:, None] > gpus[None, :] + 1e-9] = 0.0
    for row, job in enumerate(table.jobs):
        if job.demand.kinds:
            rates[row, [kind not in job.demand.kinds for kind in kinds]] = 0.0
    priority = table.column(TableColumns.PRIORITY)
    return AllocationProblem(
        rates,
        gpus,
        gangs=table.need.copy(),
        weights=np.where(priority > 0.0, priority, 1.0),
        rank=np.arange(len(table), dtype=float),
        tenant=_codes([job.tenant for job in table.jobs]),
        model=_codes([job.model for job in table.jobs]),
        pairs=_pairs(view, kinds, rates) if packed else NO_PAIRS,
    )


def add_standing(
    problem: AllocationProblem, book: UnitAccounts, view: View, *, timed: bool
) -> AllocationProblem:
    """The problem with work left and time to deadlines; work only where it is `timed`."""
    if not timed:
        return problem
    jobs = view.table.jobs
    total = np.array([job.hints.get("steps", np.nan) for job in jobs])
    done = np.array([book.done.get(job.id, 0.0) for job in jobs])
    left = np.maximum(total - done, 1e-6 * total)
    if np.isnan(total).any():
        best = problem.rates.max(axis=1)
        seconds = np.nan_to_num(view.remaining(), posinf=UNKNOWN_S)
        left = np.where(np.isnan(total), np.maximum(seconds, 1.0) * best, left)
    deadline = np.array([np.inf if j.deadline is None else j.deadline for j in jobs])
    within = np.where(deadline > view.now, deadline - view.now, np.inf)
    return replace(problem, steps=left, elapsed=view.now - view.table.submitted, within=within)


def fairness(book: UnitAccounts, problem: AllocationProblem) -> tuple[Fair, AllocationProblem]:
    """Return the times that jobs may take alone on their part, and the account for the next time.

    Steps already made count at the speed of the part that was a job's own when it made them.
    """
    jobs = [unit[0] for unit in book.units if len(unit) == 1]
    speed = compute_isolated(problem)
    ideal, fair = np.ones(len(jobs)), {}
    for i, job in enumerate(jobs):
        so_far, steps, own = book.fair.get(job, (0.0, float(problem.steps[i]), 0.0))
        if own > 0.0:
            so_far += max(steps - float(problem.steps[i]), 0.0) / own
        if speed[i] > 0.0:
            ideal[i] = so_far + problem.steps[i] / speed[i]
        fair[job] = (so_far, float(problem.steps[i]), float(speed[i]))
    return fair, replace(problem, ideal=ideal)


def fastest_first(kinds: Sequence[str], problem: AllocationProblem) -> list[int]:
    """V100, P100, K80; any other kinds by how well the jobs run on them, on average."""
    if set(kinds) <= set(ORDER):
        return sorted(range(len(kinds)), key=lambda kind: ORDER.index(kinds[kind]))
    best = np.maximum(problem.rates.max(axis=1, keepdims=True), 1e-300)
    mean = (problem.rates / best).mean(axis=0)
    return [int(kind) for kind in np.argsort(-mean, kind="stable")]


def units_of(book: UnitAccounts, problem: AllocationProblem) -> tuple[Floats, Bools]:
    """The gang of every unit, and on which kinds it can run."""
    row = {unit[0]: i for i, unit in enumerate(book.units) if len(unit) == 1}
    first = np.array([row[unit[0]] for unit in book.units])
    last = np.array([row[unit[-1]] for unit in book.units])
    return problem.gangs[first], (problem.rates[first] > 0.0) & (problem.rates[last] > 0.0)


def _rates(view: View, kinds: Sequence[str]) -> Floats:
    if view.beliefs is None:
        return np.ones((len(view.table), len(kinds)))
    believed: Floats = np.array(view.beliefs.rates(view.table, kinds), dtype=float)
    believed[np.isnan(believed)] = 1.0
    return believed


def _pairs(view: View, kinds: Sequence[str], rates: Floats) -> SharedPairs:
    """Jobs of one gang size that may share devices, where beliefs know how fast they would be."""
    if view.beliefs is None:
        return NO_PAIRS
    table = view.table
    first, second = np.triu_indices(len(table), 1)
    whole = np.array([job.demand.share == 1.0 and job.shareable for job in table.jobs])
    alike = (table.gpus[first] == table.gpus[second]) & whole[first] & whole[second]
    first, second = first[alike], second[alike]
    measured = view.beliefs.pairs(table, kinds, first, second)
    if measured is None:
        return NO_PAIRS
    speeds = np.array(measured, dtype=float)
    speeds[(rates[first] == 0.0) | (rates[second] == 0.0)] = 0.0
    useful = speeds.min(axis=2).max(axis=1) > 0.0
    return SharedPairs(first[useful], second[useful], speeds[useful])


def _codes(names: Sequence[str]) -> Floats:
    """Names as numbers, in alphabetical order."""
    code = {name: float(i) for i, name in enumerate(sorted(set(names)))}
    return np.array([code[name] for name in names])
