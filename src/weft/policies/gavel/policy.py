"""Gavel: any objective over time fractions on GPU kinds, followed by rounds.

Paper       Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
            Workloads", OSDI 2020.
Objective   chosen by `objective`: max-min fairness of normalised throughput (least attained
            service), finish-time fairness, makespan, throughput, cost, deadlines, first come,
            shortest first, or fairness between tenants and inside them.
Needs       steps per second of each job on each kind, from beliefs; without any, all kinds
            count as equally fast. Makespan, finish-time fairness, shortest first and deadlines
            also need work left: the job's steps, else the predictor.
Controls    who runs, and on which kind; with `packed`, pairs that share devices.
Cost        one linear program over classes of jobs that differ (a few for finish-time
            fairness, one a class for tenants) when jobs came or left, and O(n log n) each
            round for n active jobs.
Deviations  shares are solved again at the first round with news; the authors' code waits until
            1920 s have passed, so that a job may wait for half an hour beside idle GPUs. Kinds
            go first to jobs with a share of them, then to any job that can use them. Makespan
            is one linear program, 5 % better than the authors' bisection. First come first
            served and shortest first weigh jobs by rank. A gang costs its size times the price
            of a GPU. Running jobs keep their devices before anybody else is placed. Elastic
            jobs are rigid; jobs that may not be stopped are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.frozen import frozen
from weft.policies.gavel.accounts import Accounts, carry_forward, reset
from weft.policies.gavel.objectives import OBJECTIVES, cheapest, hierarchical
from weft.policies.gavel.problem import Problem, Solution
from weft.policies.gavel.reading import (
    add_standing,
    fairness,
    fastest_first,
    read_problem,
    units_of,
)
from weft.policies.gavel.rounds import (
    Turn,
    all_at_once,
    choose_turns,
    due_first,
    fill_turns,
    place_turns,
    rank_units,
)

Objective = Literal[
    "max-min-fairness",
    "finish-time-fairness",
    "makespan",
    "max-sum-throughput",
    "fifo",
    "shortest-job",
    "cost",
    "slo",
    "hierarchical",
]
TIMED = {"finish-time-fairness", "makespan", "shortest-job", "slo", "cost"}
PREFER = {
    "max-sum-throughput": "a stream of jobs with more throughput",
    "cost": "a stream of jobs with more throughput for the price",
    "slo": "a stream of jobs with deadlines",
    "shortest-job": "a stream of shorter jobs",
}
PRICES = {"v100": 2.48, "p100": 1.46, "k80": 0.45}
WHERE = tax.classify(
    tax.Objective.FAIRNESS,
    tax.Knowledge.SPEEDS,
    tax.Preemption.STOPS,
    tax.Heterogeneity.SPEEDS,
    tax.Fairness.JOBS,
)


@frozen
class Gavel:
    """Time on each kind by linear program, in rounds of `round` seconds.

    `aware=false` pretends that all kinds are equally fast. `reset` is the least time between two
    solutions (none: whenever jobs came or left); `solve=round` solves
    in every round and forgets no received time. `queue` fills kinds one by one (`kinds`) or by
    priority over all (`all`). `prices` and `shares` are `name=number` joined by `/`: dollars an
    hour of a GPU, and weights of tenants; tenants named in `in_turn` serve first come first.
    """

    objective: Objective = "max-min-fairness"
    aware: bool = True
    packed: bool = False
    round: float = 360.0
    reset: float | None = None
    solve: Literal["news", "round"] = "news"
    queue: Literal["kinds", "all"] = "kinds"
    prices: Mapping[str, float] = field(default_factory=lambda: dict(PRICES))
    shares: Mapping[str, float] = field(default_factory=dict)
    in_turn: tuple[str, ...] = ()

    @property
    def about(self) -> About:
        """Rounds end at multiples of their length."""
        return About(
            "gavel",
            "Narayanan et al. 2020",
            needs=Needs.REMAINING if self.objective in TIMED else Needs.NOTHING,
            controls=Controls.SHARE if self.packed else Controls.NOTHING,
            every=self.round,
            starves=PREFER.get(self.objective, ""),
            taxonomy=WHERE,
        )

    def __post_init__(self) -> None:
        if self.round <= 0:
            raise InvalidConfig(f"gavel: round={self.round:g} must be above 0 seconds")

    _counts_restarts = _fills = True  # as received time; what gangs without a place leave

    def decide(self, view: View) -> Plan:
        """Account for the last round, solve if there is news, fill the next round."""
        old = view.memory if isinstance(view.memory, Accounts) else None
        if (fixed := view.running() & ~view.preemptible()).any():
            view = view.without(fixed)
        if not len(view.table) or not view.cluster.kinds:
            return Plan()
        for on in view.held().values():
            view.free.give(on)
        kinds = view.cluster.kinds
        gpus = np.array(view.free.idle_by_kind(), dtype=float)
        problem = read_problem(view, kinds, gpus, packed=self.packed)
        book = carry_forward(
            old, view, problem, kinds, self.round / 2.0, restarts=self._counts_restarts
        )
        problem = add_standing(problem, book, view, timed=self.objective in TIMED)
        if due := self._due(book, gpus, view.now):
            book = self._solve(book, problem, view)
        turns = self._turns(book, problem, view)
        if not turns and not due:
            book = self._solve(book, problem, view)
            turns = self._turns(book, problem, view)
        return self._plan(view, book, problem, turns)

    # ---- the shares

    def _due(self, book: Accounts, gpus: Floats, now: float) -> bool:
        jobs = {unit[0] for unit in book.units}
        if self.solve == "round" or not book.solved:
            return True
        if jobs == set(book.solved) and tuple(gpus.tolist()) == book.gpus:
            return False
        return now - book.reset_at >= (self.reset or 0.0) or book.reset_at == 0.0

    def _solve(self, book: Accounts, problem: Problem, view: View) -> Accounts:
        """New shares; received time starts again, unless every round is solved."""
        if self.objective == "finish-time-fairness":
            fair, problem = fairness(book, problem)
            book = replace(book, fair=fair)
        solution = self._find_shares(self._blur(problem), view, book)
        forget = self.solve == "news"
        return reset(book, problem, solution, view.now, self.round / 2.0, forget=forget)

    def _blur(self, problem: Problem) -> Problem:
        """Without awareness every kind that can run a job runs it at its best speed."""
        if self.aware:
            return problem
        best = problem.rates.max(axis=1, keepdims=True)
        return replace(problem, rates=np.where(problem.rates > 0.0, best, 0.0))

    def _find_shares(
        self,
        problem: Problem,
        view: View,
        book: Accounts,  # noqa: ARG002 - for objectives that go on from the last shares
    ) -> Solution:
        if self.objective == "cost":
            return cheapest(problem, self._prices(view))
        if self.objective == "hierarchical":
            tenants = sorted({job.tenant for job in view.table.jobs})
            shares = {i: self.shares.get(tenant, 1.0) for i, tenant in enumerate(tenants)}
            in_turn = {i for i, tenant in enumerate(tenants) if tenant in self.in_turn}
            return hierarchical(problem, shares, in_turn)
        if self.objective == "shortest-job":
            alone = problem.steps / np.maximum(problem.rates.max(axis=1), 1e-300)
            rank = np.argsort(np.argsort(alone, kind="stable"), kind="stable")
            problem = replace(problem, rank=rank.astype(float))
        return OBJECTIVES[self.objective](problem)

    def _prices(self, view: View) -> Floats:
        return np.array([self.prices.get(kind, 1.0) for kind in view.cluster.kinds])

    # ---- the round

    def _turns(self, book: Accounts, problem: Problem, view: View) -> list[Turn]:
        gangs, runs = units_of(book, problem)
        turns = choose_turns(book, gangs, runs, problem.gpus, self._queue(book, problem, view))
        # The authors' code lets a job that arrived since the last solution take a turn, then
        # drops it when devices are given out.
        solved = set(book.solved)
        return [turn for turn in turns if solved.issuperset(book.units[turn.unit])]

    def _queue(self, book: Accounts, problem: Problem, view: View) -> Iterable[tuple[int, int]]:
        """Units and kinds, who is served first first."""
        _, runs = units_of(book, problem)
        priority = rank_units(book, runs)
        order = self._order(view, problem)
        if self.queue == "all":
            return all_at_once(priority, order)
        return due_first(book, priority, order)

    def _order(self, view: View, problem: Problem) -> Sequence[int]:
        if not self.aware:
            return [int(kind) for kind in view.rng.permutation(len(problem.gpus))]
        return fastest_first(view.cluster.kinds, problem)

    def _plan(self, view: View, book: Accounts, problem: Problem, turns: list[Turn]) -> Plan:
        gangs, runs = units_of(book, problem)
        given = place_turns(view, turns, gangs, book.kinds)
        if self._fills and view.free.idle():
            fill_turns(view, book, runs, self._queue(book, problem, view), given)
        everything = {job: on for part in given.values() for job, on in part.items()}
        where = {turn.unit: turn.kind for turn in given}
        on = tuple(where.get(unit, -1) for unit in range(len(book.units)))
        plan = Plan.target(view, everything)
        return replace(plan, memory=replace(book, on=on, round_at=view.now))
