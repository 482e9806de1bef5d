"""Gavel as the authors' code has it (Narayanan et al., OSDI 2020).

Rounds end with their last task, a restart is no received time, shares are solved again after
1920 s, and kinds are filled one by one. Of equally good solutions one from the middle is taken, as
interior-point solvers do. Makespan is bisected to 5 %, cost is a sum of ratios, and first come
first served is greedy; without awareness it draws a kind and keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft_papers.gavel.accounts import UnitAccounts
from weft_papers.gavel.objectives import within_deadlines
from weft_papers.gavel.policy import Gavel, PlacedUnit, best_first, rank_units
from weft_papers.gavel.problem import (
    AllocationProblem,
    Program,
    Solution,
    greatest_sum,
    highest_level,
)
from weft_papers.gavel.reading import units_of

RESET_S = 1920.0
HALVED_S = (100.0, 1_000_000.0)
HALVED_GAP = 1.05


@dataclass(frozen=True)
class AuthorsGavel(Gavel):
    """The authors' objectives and rounds; `reset` is the least time between two solutions."""

    reset: float | None = RESET_S

    _counts_restarts = _fills = False

    @property
    def about(self) -> About:
        """Rounds end with their last task, and leave gaps."""
        gaps = "the authors' code leaves gaps in a round"
        return replace(super().about, every=None, idles=gaps)

    def decide(self, view: View) -> Plan:
        """Wait for the end of the round; then as ever."""
        old = view.memory
        if isinstance(old, UnitAccounts) and in_round(old, view, self.round):
            return Plan(wake_at=old.round_at + self.round, memory=old)
        return super().decide(view)

    def _blur(self, problem: AllocationProblem) -> AllocationProblem:
        """The linear programs forget that some kinds cannot run a job."""
        problem = replace(problem, interior=True)
        if self.aware or self.objective == "fifo":
            return super()._blur(problem)
        best = problem.rates.max(axis=1, keepdims=True)
        return replace(problem, rates=np.where(np.ones_like(problem.rates, bool), best, 0.0))

    def _find_shares(self, problem: AllocationProblem, view: View, book: UnitAccounts) -> Solution:
        if self.objective == "cost":
            return cheapest_sum(problem, self._prices(view))
        if self.objective == "makespan":
            return bisect_makespan(problem)
        if self.objective != "fifo":
            return super()._find_shares(problem, view, book)
        if self.aware:
            return greedy_fifo(problem)
        return random_fifo(problem, book.share[: len(problem)], view.rng)

    def _queue(
        self, book: UnitAccounts, problem: AllocationProblem, view: View
    ) -> Iterable[tuple[int, int]]:
        """All units for the first kind, best first, then for the next."""
        if self.queue == "all":
            return super()._queue(book, problem, view)
        _, runs = units_of(book, problem)
        priority = rank_units(book, runs)
        order = self._order(view, problem)
        return (
            (int(unit), kind)
            for kind in order
            for unit in best_first(book, priority, kind)
            if self.objective != "fifo" or priority[unit, kind] > 0.0
        )

    def _plan(
        self, view: View, book: UnitAccounts, problem: AllocationProblem, turns: list[PlacedUnit]
    ) -> Plan:
        plan = super()._plan(view, book, problem, turns)
        return replace(plan, wake_at=view.now + self.round)


def in_round(book: UnitAccounts, view: View, length: float) -> bool:
    """Return true if the round that began last is not over: its time is not up and a job runs."""
    if view.now >= book.round_at + length * (1.0 - 1e-12):
        return False
    ran = {job for unit, on in zip(book.units, book.on, strict=True) if on >= 0 for job in unit}
    return any(job in ran for job in view.held())


def cheapest_sum(problem: AllocationProblem, prices: Floats) -> Solution:
    """The greatest sum of steps per dollar of each job and kind that keeps deadlines."""
    program = Program(problem)
    solution = within_deadlines(program, program.throughput() / prices[program.on])
    return replace(solution, alone=np.clip(solution.alone, 0.0, 1.0))


def bisect_makespan(problem: AllocationProblem) -> Solution:
    """As the authors' code: any shares that finish in a time within 5 % of the least.

    The time is what halving from 100 s to 1,000,000 s arrives at, ten times further where that
    is too little; the shares are from the middle of those that meet it.
    """
    program = Program(problem)
    solution, _ = highest_level(program, problem.steps)
    if solution.value <= 0.0:
        return replace(solution, value=np.inf)
    reached = _halve(1.0 / solution.value, *HALVED_S)
    floor = np.where(program.best_speeds() > 0.0, problem.steps / reached, 0.0)
    return replace(greatest_sum(program, np.zeros(program.n), floor), value=reached)


def _halve(least_s: float, low: float, high: float) -> float:
    """The last time at or above `least_s` that bisection between two times asks for."""
    limit = high
    while True:
        reached = 0.0
        while HALVED_GAP * low < high:
            middle = (low + high) / 2.0
            low, high = (low, middle) if middle >= least_s else (middle, high)
            reached = high if middle >= least_s else reached
        if reached:
            return reached
        low, high = limit, limit * 10.0
        limit = high


def greedy_fifo(problem: AllocationProblem) -> Solution:
    """As the authors' code: in order, the fastest kind with room; no job overtakes."""

    def fastest(rates: Floats, fits: Bools) -> int:
        return int(np.where(fits, rates, -1.0).argmax())

    return _in_turn(problem, np.zeros_like(problem.rates), fastest)


def random_fifo(problem: AllocationProblem, kept: Floats, rng: np.random.Generator) -> Solution:
    """As the authors' code without awareness: in order, any kind with room, kept to the end.

    `kept` are the fractions so far: who has a kind keeps it.
    """

    def any_usable(rates: Floats, fits: Bools) -> int:
        usable = np.flatnonzero(fits & (rates > 0.0))
        return int(rng.choice(usable)) if len(usable) else 0

    return _in_turn(problem, kept, any_usable)


def _in_turn(
    problem: AllocationProblem, kept: Floats, choose: Callable[[Floats, Bools], int]
) -> Solution:
    alone = np.where((kept > 0.0) & (problem.rates > 0.0), 1.0, 0.0)
    room = problem.gpus - problem.gangs @ alone
    for job in np.argsort(problem.rank, kind="stable"):
        if alone[job].any():
            continue
        fits = room >= problem.gangs[job]
        if not fits.any():
            break
        kind = choose(problem.rates[job], fits)
        if problem.rates[job, kind] > 0.0 and fits[kind]:
            alone[job, kind] = 1.0
            room[kind] -= problem.gangs[job]
    return Solution(float(alone.sum()), alone, np.zeros(problem.pairs.rates.shape[:2]))
