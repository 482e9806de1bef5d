"""Gavel's variables: the part of time that each job, or pair of jobs, should spend on each kind.

Jobs that no objective can tell apart are one class with a count, so that programs grow with the
number of different jobs, not with the number of jobs.
"""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.frozen import frozen
from weft.solve.linear_program import Sparse, maximise

NONE = np.zeros(0)


def _none() -> Floats:
    return NONE


@frozen
class SharedPairs:
    """Two jobs on the same devices: rows `first` and `second`, and the speed of each by kind."""

    first: Rows
    second: Rows
    rates: Floats  # pairs x kinds x 2


NO_PAIRS = SharedPairs(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros((0, 0, 2)))


@frozen
class AllocationProblem:
    """Jobs, or classes of jobs, as columns, and the GPUs there are of each kind.

    `rates` is steps per second by job and kind for a whole gang, 0 where it cannot run. `steps`
    is work left, `elapsed` seconds since submission, `ideal` how long finish-time fairness
    says the whole job may take alone on its part of the cluster, `within` seconds to the
    deadline. Columns that an objective does not read may be left empty. `interior` asks for
    solutions from the middle of the best ones.
    """

    rates: Floats
    gpus: Floats
    gangs: Floats = field(default_factory=_none)
    weights: Floats = field(default_factory=_none)
    steps: Floats = field(default_factory=_none)
    elapsed: Floats = field(default_factory=_none)
    ideal: Floats = field(default_factory=_none)
    within: Floats = field(default_factory=_none)
    rank: Floats = field(default_factory=_none)
    tenant: Floats = field(default_factory=_none)
    model: Floats = field(default_factory=_none)
    counts: Floats = field(default_factory=_none)
    pairs: SharedPairs = NO_PAIRS
    interior: bool = False

    def __post_init__(self) -> None:
        for name in ("gangs", "weights", "counts"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.ones(len(self.rates)))

    def __len__(self) -> int:
        return len(self.rates)


COLUMNS = ("gangs", "weights", "steps", "elapsed", "ideal", "within", "rank", "tenant", "model")


@frozen
class Solution:
    """Fractions of time X by job and kind, by pair and kind, and what the objective is worth."""

    value: float
    alone: Floats
    paired: Floats

    def throughput(self, problem: AllocationProblem) -> Floats:
        """Steps per second of each job under these fractions."""
        rate: Floats = (problem.rates * self.alone).sum(axis=1)
        pairs = problem.pairs
        if len(pairs.first):
            np.add.at(rate, pairs.first, (pairs.rates[:, :, 0] * self.paired).sum(axis=1))
            np.add.at(rate, pairs.second, (pairs.rates[:, :, 1] * self.paired).sum(axis=1))
        return rate


def fold(problem: AllocationProblem, *told_apart_by: str) -> tuple[AllocationProblem, Rows]:
    """Classes of jobs that agree in rates and the named columns, and the class of each job.

    The middle of the best solutions depends on how many variables there are: no jobs are folded
    together.
    """
    columns = [getattr(problem, name) for name in told_apart_by]
    if problem.interior:
        columns.append(np.arange(len(problem), dtype=float))
    keys = np.column_stack([problem.rates, *columns])
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    # Classes in order of their first job: which optimum is found does not depend on speeds.
    order = np.argsort(first, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    first, group = first[order], position[group.reshape(-1)]
    kept = {n: c[first] for n in COLUMNS if len(c := getattr(problem, n))}
    counts = np.bincount(group, problem.counts, len(first)).astype(float)
    folded = replace(problem, rates=problem.rates[first], counts=counts, **kept)
    return replace(folded, pairs=_fold_pairs(problem.pairs, group)), group


def unfold(
    folded: AllocationProblem, solution: Solution, problem: AllocationProblem, group: Rows
) -> Solution:
    """Every job of a class gets the same; a pair of classes is spread over all its pairs."""
    alone = np.clip(solution.alone[group], 0.0, 1.0)
    pairs, classes = problem.pairs, folded.pairs
    if not len(pairs.first):
        return replace(solution, alone=alone)
    index = {ab: i for i, ab in enumerate(zip(classes.first, classes.second, strict=True))}
    ordered = np.sort(np.column_stack([group[pairs.first], group[pairs.second]]), axis=1)
    of = np.array([index[int(a), int(b)] for a, b in ordered])
    many = np.bincount(of, minlength=len(classes.first))
    paired = np.clip(solution.paired[of] / many[of, None], 0.0, 1.0)
    return Solution(solution.value, alone, paired)


def _fold_pairs(pairs: SharedPairs, group: Rows) -> SharedPairs:
    if not len(pairs.first):
        return pairs
    a, b = group[pairs.first], group[pairs.second]
    rates = np.where((a > b)[:, None, None], pairs.rates[:, :, ::-1], pairs.rates)
    ordered = np.sort(np.column_stack([a, b]), axis=1)
    unique, first = np.unique(ordered, axis=0, return_index=True)
    return SharedPairs(unique[:, 0], unique[:, 1], rates[first])


class Program:
    """The feasible set as a matrix: no job runs more than all the time, no kind is overbooked.

    Variables are total time by (class or pair of classes, kind), in job-rounds per round.
    """

    def __init__(self, problem: AllocationProblem) -> None:
        self.problem = problem
        unit, kind = np.nonzero(problem.rates > 0.0)
        pair, with_kind = np.nonzero((problem.pairs.rates > 0.0).all(axis=2))
        self._unit, self._kind, self._pair, self._with = unit, kind, pair, with_kind
        pairs = problem.pairs
        self.n = len(unit) + len(pair)
        joint = len(unit) + np.arange(len(pair))
        first, second = pairs.first[pair], pairs.second[pair]
        # (class, variable, steps per second of that class); both halves of a pair of one class
        # are the same entry.
        self.member = np.concatenate([unit, first, second])
        self.variable = np.concatenate([np.arange(len(unit)), joint, joint])
        self.rate = np.concatenate(
            [
                problem.rates[unit, kind],
                pairs.rates[pair, with_kind, 0] if len(pair) else NONE,
                pairs.rates[pair, with_kind, 1] if len(pair) else NONE,
            ]
        )
        self.gang = np.concatenate([problem.gangs[unit], problem.gangs[first]])
        self.on = np.concatenate([kind, with_kind])
        self.base, self.limits = self._base()

    def _base(self) -> tuple[Sparse, Floats]:
        """Time of each class, then GPUs of each kind."""
        problem, n = self.problem, self.n
        jobs, kinds = len(problem), len(problem.gpus)
        time = Sparse(self.member, self.variable, np.ones(len(self.member)), (jobs, n))
        room = Sparse(self.on, np.arange(n), self.gang, (kinds, n))
        return time.above(room), np.concatenate([problem.counts, problem.gpus])

    def speeds(self) -> Sparse:
        """Classes x variables: what a unit of time adds to the throughput of each job."""
        values = self.rate / self.problem.counts[self.member]
        return Sparse(self.member, self.variable, values, (len(self.problem), self.n))

    def best_speeds(self) -> Floats:
        """The greatest entry of each row of `speeds`; 0 where a class runs nowhere."""
        top = np.zeros(len(self.problem))
        np.maximum.at(top, self.member, self.rate / self.problem.counts[self.member])
        return top

    def throughput(self) -> Floats:
        """Throughput of all jobs together for each unit of time of each variable."""
        return np.bincount(self.variable, self.rate, self.n).astype(float)

    def solution(self, value: float, x: Floats) -> Solution:
        """Variables back as fractions of each job's time."""
        problem = self.problem
        alone = np.zeros_like(problem.rates)
        alone[self._unit, self._kind] = x[: len(self._unit)]
        paired = np.zeros(problem.pairs.rates.shape[:2])
        paired[self._pair, self._with] = x[len(self._unit) : self.n]
        return Solution(value, alone / problem.counts[:, None], paired)


def highest_level(
    program: Program, need: Floats, floor: Floats | None = None
) -> tuple[Solution, Floats]:
    """The greatest z with throughput >= floor + z need for every class, and its duals.

    Rows are measured in each class's best speed and z in the greatest need, so that steps of
    microseconds and of hours are solved alike.
    """
    top = program.best_speeds()
    runs, safe = top > 0.0, np.where(top > 0.0, top, 1.0)
    need = np.where(runs, need, 0.0) / safe
    scale = float(need.max(initial=0.0))
    if scale == 0.0:
        return program.solution(0.0, np.zeros(program.n)), np.zeros(len(need))
    floors = np.zeros(len(need)) if floor is None else np.where(runs, floor, 0.0) / safe
    rows = program.speeds().scaled(-1.0 / safe).beside(need / scale)
    limits = np.concatenate([program.limits, -floors])
    cost = np.append(np.zeros(program.n), 1.0)
    interior = program.problem.interior
    optimum = maximise(cost, program.base.above(rows), limits, interior=interior)
    duals = np.abs(optimum.duals[len(program.limits) :])
    return program.solution(float(optimum.x[-1]) / scale, optimum.x), duals


def greatest_sum(
    program: Program, worth: Floats, floor: Floats | None = None, surplus: Floats | None = None
) -> Solution:
    """The most worth of all variables, with throughput >= floor for every class.

    Where a `surplus` of each variable is given, theirs in all is not below 0.
    """
    scale = float(np.abs(worth).max(initial=0.0)) or 1.0
    matrix, limits = program.base, program.limits
    if floor is not None:
        safe = np.maximum(program.best_speeds(), 1e-12)
        matrix = matrix.above(program.speeds().scaled(-1.0 / safe))
        limits = np.concatenate([limits, -floor / safe])
    if surplus is not None:
        unit = float(np.abs(surplus).max(initial=0.0)) or 1.0
        matrix = matrix.above(Sparse.of(-surplus[None, :] / unit))
        limits = np.append(limits, 0.0)
    optimum = maximise(worth / scale, matrix, limits, interior=program.problem.interior)
    return program.solution(optimum.value * scale, optimum.x)
