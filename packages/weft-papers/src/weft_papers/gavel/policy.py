"""Gavel: any objective over time fractions on GPU kinds, followed by rounds.

Paper       Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
            Workloads", OSDI 2020.
Objective   chosen by `objective`: max-min fairness of normalised throughput (least attained
            service), finish-time fairness, makespan, throughput, cost, deadlines, first come,
            shortest first, or fairness between tenants and inside them.
Needs       steps per second of each job on each kind, from beliefs; without any, all kinds
            count as equally fast. Makespan, finish-time fairness, shortest first and deadlines
            also need work left: the job's steps, else the predictor.
Controls    which jobs run, and on which kind; with `packed`, pairs that share devices.
Cost        one linear program over classes of jobs that differ (a few for finish-time
            fairness, one a class for tenants) when jobs came or left, and O(n log n) each
            round for n active jobs.
Deviations  shares are solved again at the first round after a change; the authors' code waits until
            1920 s have passed, so that a job may wait for half an hour beside idle GPUs. Kinds
            go first to jobs with a share of them, then to any job that can use them. Makespan
            is one linear program, 5 % better than the authors' bisection. First come first
            served and shortest first weigh jobs by rank. A gang costs its size times the price
            of a GPU. Running jobs keep their devices before other jobs are placed. Elastic
            jobs are rigid; jobs that may not be stopped are left alone. Where many shares are
            equally good another solver takes other ones than the authors': with makespan on
            Shockwave's 120 jobs mean completion time is the same and the worst finish-time
            fairness 8.49 against 7.74, that of one short job (8.49 with their solver too);
            max-min fairness blind to kinds takes 3.2 to 5.2 % longer on the makespan trace, most
            of it by the solver (`python -m weft_papers.gavel.published`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import Allocation, Job, JobId, Sharing, Slice
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft_papers.gavel.accounts import UnitAccounts, carry_forward, reset
from weft_papers.gavel.objectives import OBJECTIVES, cheapest, hierarchical
from weft_papers.gavel.problem import AllocationProblem, Solution
from weft_papers.gavel.reading import add_standing, fairness, fastest_first, read_problem, units_of

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
    tax.NeededKnowledge.SPEEDS,
    tax.Preemption.STOPS,
    tax.Heterogeneity.SPEEDS,
    tax.Fairness.JOBS,
)


@frozen
class Gavel:
    """Time on each kind by linear program, in rounds of `round` seconds.

    `aware=false` assumes that all kinds are equally fast. `reset` is the least time between two
    solutions (none: whenever jobs came or left); `solve=round` solves in every round and keeps all
    received time. `queue` fills kinds one by one (`kinds`) or by priority over all (`all`).
    `prices` and `shares` are `name=number` joined by `/`: dollars per GPU-hour, and weights of
    tenants; tenants named in `in_turn` serve their jobs first come, first served.
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
        old = view.memory if isinstance(view.memory, UnitAccounts) else None
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

    def _due(self, book: UnitAccounts, gpus: Floats, now: float) -> bool:
        jobs = {unit[0] for unit in book.units}
        if self.solve == "round" or not book.solved:
            return True
        if jobs == set(book.solved) and tuple(gpus.tolist()) == book.gpus:
            return False
        return now - book.reset_at >= (self.reset or 0.0) or book.reset_at == 0.0

    def _solve(self, book: UnitAccounts, problem: AllocationProblem, view: View) -> UnitAccounts:
        """New shares; received time starts again, unless every round is solved."""
        if self.objective == "finish-time-fairness":
            fair, problem = fairness(book, problem)
            book = replace(book, fair=fair)
        solution = self._find_shares(self._blur(problem), view, book)
        forget = self.solve == "news"
        return reset(book, problem, solution, view.now, self.round / 2.0, forget=forget)

    def _blur(self, problem: AllocationProblem) -> AllocationProblem:
        """Without awareness every kind that can run a job runs it at its best speed."""
        if self.aware:
            return problem
        best = problem.rates.max(axis=1, keepdims=True)
        return replace(problem, rates=np.where(problem.rates > 0.0, best, 0.0))

    def _find_shares(
        self,
        problem: AllocationProblem,
        view: View,
        book: UnitAccounts,  # noqa: ARG002 - for objectives that go on from the last shares
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

    def _turns(
        self, book: UnitAccounts, problem: AllocationProblem, view: View
    ) -> list[PlacedUnit]:
        gangs, runs = units_of(book, problem)
        turns = choose_turns(book, gangs, runs, problem.gpus, self._queue(book, problem, view))
        # The authors' code lets a job that arrived since the last solution take a turn, then
        # drops it when devices are given out.
        solved = set(book.solved)
        return [turn for turn in turns if solved.issuperset(book.units[turn.unit])]

    def _queue(
        self, book: UnitAccounts, problem: AllocationProblem, view: View
    ) -> Iterable[tuple[int, int]]:
        """Units and kinds, in the order in which they are served."""
        _, runs = units_of(book, problem)
        priority = rank_units(book, runs)
        order = self._order(view, problem)
        if self.queue == "all":
            return queue_by_priority(priority, order)
        return queue_entitled_first(book, priority, order)

    def _order(self, view: View, problem: AllocationProblem) -> Sequence[int]:
        if not self.aware:
            return [int(kind) for kind in view.rng.permutation(len(problem.gpus))]
        return fastest_first(view.cluster.kinds, problem)

    def _plan(
        self, view: View, book: UnitAccounts, problem: AllocationProblem, turns: list[PlacedUnit]
    ) -> Plan:
        gangs, runs = units_of(book, problem)
        given = place_turns(view, turns, gangs, book.kinds)
        if self._fills and view.free.idle():
            fill_turns(view, book, runs, self._queue(book, problem, view), given)
        everything = {job: on for part in given.values() for job, on in part.items()}
        where = {turn.unit: turn.kind for turn in given}
        on = tuple(where.get(unit, -1) for unit in range(len(book.units)))
        plan = Plan.target(view, everything)
        return replace(plan, memory=replace(book, on=on, round_at=view.now))


# ---- The mechanism: which jobs run on which kind this round, so that time received approaches the
# shares
#
# Paper section 5. Every unit has a priority on every kind, its share over the fraction of the
# kind's time that it has had; rounds are filled greedily by priority.


EPS = 1e-9
HALF = Sharing(share=0.5)


@frozen
class PlacedUnit:
    """A unit on a kind: rows of its jobs, and where."""

    unit: int
    rows: tuple[int, ...]
    kind: int


def rank_units(book: UnitAccounts, runs: Bools) -> Floats:
    """Units x kinds: X / f where a unit has a share and can run, else 0."""
    fraction = book.received / np.maximum(book.total, EPS)
    solved = set(book.solved)
    known = np.array([solved.issuperset(unit) for unit in book.units])
    due = book.share / np.maximum(fraction, 1e-9)
    return np.where(runs & known[:, None] & (book.share > 0.0), due, 0.0)


def queue_entitled_first(
    book: UnitAccounts, priority: Floats, order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Every kind to those with a share of it; then what is left to any job."""
    queues = [(kind, best_first(book, priority, kind)) for kind in order]
    for kind, queue in queues:
        yield from ((int(u), kind) for u in queue if priority[u, kind] > 0.0)
    for kind, queue in queues:
        yield from ((int(u), kind) for u in queue if priority[u, kind] <= 0.0)


def queue_by_priority(priority: Floats, order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Units and kinds in one queue by priority, as in Sia's simulator."""
    kinds = np.tile(np.asarray(order, dtype=np.intp), len(priority))
    units = np.repeat(np.arange(len(priority)), len(order))
    for i in np.argsort(-priority[units, kinds], kind="stable"):
        yield int(units[i]), int(kinds[i])


def choose_turns(
    book: UnitAccounts, gangs: Floats, runs: Bools, gpus: Floats, queue: Iterable[tuple[int, int]]
) -> list[PlacedUnit]:
    """Take from the queue whatever finds room; no job twice. `gangs` is by unit."""
    row = {unit[0]: i for i, unit in enumerate(book.units) if len(unit) == 1}
    room = gpus.tolist()
    taken: set[str] = set()
    turns = []
    for unit, kind in queue:
        gang, jobs = gangs[unit], book.units[unit]
        if gang > room[kind] + EPS or not runs[unit, kind] or not taken.isdisjoint(jobs):
            continue
        room[kind] -= gang
        taken.update(jobs)
        turns.append(PlacedUnit(unit, tuple(row[job] for job in jobs), kind))
    return turns


def place_turns(
    view: View, turns: Sequence[PlacedUnit], gangs: Floats, kinds: Sequence[str]
) -> dict[PlacedUnit, dict[JobId, Allocation]]:
    """Devices for every turn: the same as before where possible, else on the fewest nodes.

    The ledger must have taken back what all jobs held.
    """
    done: dict[PlacedUnit, dict[JobId, Allocation]] = {}
    for turn in turns:
        if held := _keep(view, turn, kinds[turn.kind]):
            done[turn] = held
    for turn in sorted(turns, key=lambda turn: -gangs[turn.unit]):
        if turn not in done and (allocations := _find(view, turn, kinds[turn.kind])):
            done[turn] = allocations
    return done


def fill_turns(
    view: View,
    book: UnitAccounts,
    runs: Bools,
    queue: Iterable[tuple[int, int]],
    given: dict[PlacedUnit, dict[JobId, Allocation]],
) -> None:
    """The jobs that find devices among those that gangs without a place leave; `given` grows."""
    row = {unit[0]: i for i, unit in enumerate(book.units) if len(unit) == 1}
    taken: set[str] = {job for part in given.values() for job in part}
    for unit, kind in queue:
        jobs = book.units[unit]
        if not view.free.idle() or not runs[unit, kind] or not taken.isdisjoint(jobs):
            continue
        turn = PlacedUnit(unit, tuple(row[job] for job in jobs), kind)
        if allocations := _find(view, turn, book.kinds[kind]):
            given[turn] = allocations
            taken.update(jobs)


def best_first(book: UnitAccounts, priority: Floats, kind: int) -> Rows:
    """Order rows by priority, deficit and share; ties go to the earlier job."""
    keys = (-book.share[:, kind], -book.deficit[:, kind], -priority[:, kind])
    return np.lexsort(keys)


def _keep(view: View, turn: PlacedUnit, kind: str) -> dict[JobId, Allocation]:
    """Return the allocations of a unit that runs on this kind, shared alike and still its own."""
    held = [view.allocation(row) for row in turn.rows]
    jobs = [view.job(row) for row in turn.rows]
    share = 0.5 if len(jobs) == 2 else jobs[0].demand.share
    if held[0] is None or any(on is None or on.slices != held[0].slices for on in held):
        return {}
    if view.cluster.kind_of(held[0]) != kind or held[0].sharing.share != share:
        return {}
    return _take(view, jobs, held[0])


def _find(view: View, turn: PlacedUnit, kind: str) -> dict[JobId, Allocation]:
    jobs = [view.job(row) for row in turn.rows]
    demand = replace(jobs[0].demand, kinds=(kind,))
    on = fewest_nodes(replace(jobs[0], demand=demand), view.free)
    if on is not None and len(jobs) == 2:
        on = Allocation(tuple(_halve(view, part) for part in on.slices), HALF)
    return {} if on is None else _take(view, jobs, on)


def _take(view: View, jobs: Sequence[Job], on: Allocation) -> dict[JobId, Allocation]:
    """Promise the allocation to all jobs of a turn, or to none."""
    mark = view.free.mark()
    for _ in jobs:
        if not view.free.fits(on):
            view.free.rollback(mark)
            return {}
        view.free.take(on)
    return {job.id: on for job in jobs}


def _halve(view: View, part: Slice) -> Slice:
    devices = sum(1 << gpu for gpu in part.gpus)
    return view.free.slice_of(view.cluster.index[part.node], devices, 0.5)
