"""Shockwave: plan rounds ahead for jobs that change as they train, fair and with a short makespan.

Paper       Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic
            Adaptation in Machine Learning", NSDI 2023.
Objective   over a window of rounds, the product of the progress of all jobs (Nash welfare), less
            `kappa` for every second that the longest job has left; jobs that would end later than
            alone on their share weigh more.
Needs       regimes of jobs: epochs, seconds of one in each regime, and those seen so far; for other
            jobs an estimate of remaining time.
Controls    which jobs run in each round.
Cost        an integer program over counts of rounds, within a part 1e-3 of the best, when jobs
            came or left and every `replan` rounds; else O(n log n) for n active jobs.
Deviations  the authors' program has a variable for each job and round; ours has counts, which are
            all that its objective depends on, and rounds are assigned afterwards: first to jobs
            that must run in all that are left, then to those whose early GPU-rounds weigh most,
            where theirs solve a second program. Counts that cannot be packed are chosen again: with
            a variable for each job and round in windows of up to 120 of them, else round by round,
            each to the jobs that are worth most in it, the last round first; `gap` is what packing
            costs at most: larger windows are worth 0.04 % less than by their program on average and
            0.7 % at most (`python -m weft_papers.shockwave.published packing`). Weights are cut at
            1e6; late jobs with less than a round to go, whose weight is a hundredth power with the
            authors, must run. A regulariser worth more than all welfare is met first, and welfare
            is maximised within it: together, welfare would vanish in the solver's tolerance, which
            stops after 200 nodes of its search. Idle GPUs are filled when a round begins, not when
            it is planned. All kinds form one pool; jobs that may not be stopped are left
            alone; elastic jobs are rigid. `shorter` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import isfinite

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import EpochsSoFar
from weft.core.model.job import Allocation, Job, JobId
from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Fairness, NeededKnowledge, Objective, Preemption, classify
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.formulas.training.regimes import (
    Regimes,
    mean_epoch_s,
    past_seconds,
    predict_remaining,
    regimes_of,
)
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft_papers.shockwave.packing import RoundSchedule, fill, plan_rounds
from weft_papers.shockwave.welfare import HEAVIEST, RoundWindow

WHERE = classify(
    Objective.FAIRNESS | Objective.MAKESPAN,
    NeededKnowledge.DURATIONS,
    Preemption.STOPS,
    Fairness.FINISH_TIME,
)


@frozen
class ShockwaveMemory:
    """The plan from round `since` on, the jobs it is for, and the targets of jobs.

    `gap` is what the plan is worth less than one that need not be packed, at most.
    """

    since: int
    rounds: tuple[tuple[JobId, ...], ...]
    jobs: tuple[JobId, ...]
    targets: Mapping[JobId, TargetSeries] = field(default_factory=dict)
    gap: float = 0.0


@frozen
class Shockwave:
    """Nash welfare over `window` rounds of `round` seconds, planned every `replan` rounds.

    `kappa` weighs the longest remainder, in seconds; `exponent` is that of a late job's weight.
    `rho` is how much later than its target a job may end. `shorter` gives jobs more weight by that
    power of how much less they have left than others: mean completion time becomes an objective.
    """

    round: float = 120.0
    window: int = 20
    replan: int = 8
    kappa: float = 1e-3
    exponent: float = 12.0
    rho: float = 1.0
    shorter: float = 0.0

    def __post_init__(self) -> None:
        if self.round <= 0.0 or self.window < 1 or self.replan < 1:
            raise InvalidConfig(
                f"shockwave: round={self.round:g}, window={self.window} and replan={self.replan} "
                "must be above 0"
            )
        if min(self.kappa, self.exponent, self.shorter) < 0.0 or self.rho <= 0.0:
            raise InvalidConfig(
                f"shockwave: kappa={self.kappa:g}, exponent={self.exponent:g} and "
                f"shorter={self.shorter:g} must not be negative, and rho={self.rho:g} above 0"
            )

    @property
    def about(self) -> About:
        """About a policy that decides at the beginning of rounds."""
        return About(
            "shockwave",
            "Zheng et al. 2023",
            needs=Needs.REMAINING,
            every=self.round,
            taxonomy=WHERE,
        )

    _trusting = False  # whether a job whose epochs are counted is taken for done

    def decide(self, view: View) -> Plan:
        """Follow the plan, or make a new one; then fill what is idle."""
        if (fixed := view.running() & ~view.preemptible()).any():
            view = view.without(fixed)
        if not len(view.table):
            return Plan()
        held = view.held()
        for on in held.values():
            view.free.give(on)
        if view.free.room() <= 0.0:
            return Plan()
        now = round(view.now / self.round)
        standing = read_progress(view, self.round, trusting=self._trusting)
        memory = self._renew(view, standing, now)
        planned = set(memory.rounds[now - memory.since])
        rows = [row for row, job in enumerate(view.table.jobs) if job.id in planned]
        given = _place(view, rows, held)
        waiting = [row for row, job in enumerate(view.table.jobs) if job.id not in given]
        more = fill(view.free.room(), standing.gangs, standing.left_s, waiting)
        given.update(_place(view, more, held))
        for row in sorted(waiting, key=lambda row: -standing.left_s[row]):
            if view.job(row).id not in given:  # kinds, and gangs on nodes, may leave a gap
                given.update(_place(view, [row], held))
        plan = Plan.target(view, given)
        return Plan(plan.changes, memory=memory, numbers={"gap": memory.gap})

    # ---- the plan

    def _renew(self, view: View, standing: RoundJobs, now: int) -> ShockwaveMemory:
        """The memory as it was, or with a new plan: jobs came or left, or its time is over."""
        old = view.memory if isinstance(view.memory, ShockwaveMemory) else None
        jobs = tuple(job.id for job in view.table.jobs)
        same = old is not None and old.jobs == jobs
        if old is not None and same and now - old.since < min(self.replan, len(old.rounds)):
            return old
        targets = dict(old.targets) if old is not None else {}
        gpus = view.free.room()
        if not same:
            targets = _append_targets(targets, jobs, standing, now, share(gpus, len(jobs)))
        goals = np.array([targets[job].average(now) for job in jobs])
        plan = self._plan_rounds(standing, goals, now, gpus)
        rounds = tuple(
            tuple(jobs[row] for row in np.flatnonzero(column).tolist()) for column in plan.runs.T
        )
        return ShockwaveMemory(now, rounds, jobs, targets, plan.gap)

    def _plan_rounds(self, at: RoundJobs, goals: Floats, now: int, gpus: float) -> RoundSchedule:
        """Choose the jobs of each round of the window."""
        kappa, exponent = self._constants(gpus)
        phi = share(gpus, len(goals))
        ends = self.round * (now + self.window)
        # A job must run so much that its rest, on its share from then on, ends by its target.
        least = at.left_s - phi * (self.rho * goals - ends)
        least = np.where(self.rho * goals < ends, np.inf, np.maximum(least, 0.0))
        short = self._favour(at)
        plan = plan_rounds(self._window(at, short, gpus, least), kappa)
        if plan is None:
            late = self._lateness(at, goals, now, phi)
            heavy = np.where(late > self.rho, np.maximum(late, 1.0) ** exponent, 1.0)
            weight = np.minimum(short * heavy, HEAVIEST)
            ending = (late > self.rho) & (at.left_s < self.round)
            problem = self._window(at, weight, gpus, _fit(ending, late, at, gpus, self.window))
            plan = plan_rounds(problem, kappa, strict=False)
        assert plan is not None
        return plan

    def _constants(self, gpus: float) -> tuple[float, float]:  # noqa: ARG002 - others go by them
        return self.kappa, self.exponent

    def _window(self, at: RoundJobs, weight: Floats, gpus: float, least: Floats) -> RoundWindow:
        return RoundWindow(
            at.gangs,
            at.epochs,
            at.over,
            at.epoch_s,
            at.left_s,
            weight,
            gpus,
            self.window,
            self.round,
            least,
        )

    def _favour(self, at: RoundJobs) -> Floats:
        """More weight for jobs with less to do, around 1 for those in the middle."""
        if not self.shorter:
            return np.ones(len(at.left_s))
        return np.asarray((np.median(at.left_s) / np.maximum(at.left_s, 1.0)) ** self.shorter)

    def _lateness(self, at: RoundJobs, goals: Floats, now: int, phi: float) -> Floats:
        """Return when each job would end on its share from now on, over its target."""
        return np.asarray((self.round * now + at.left_s / phi) / np.maximum(goals, 1e-9))


def _fit(ending: Bools, late: Floats, at: RoundJobs, gpus: float, rounds: int) -> Floats:
    """Return the time for late jobs with less than a round to go: all of it, as far as they fit.

    Each takes the first round with room for its gang: what is promised can be kept.
    """
    order = np.flatnonzero(ending)[np.argsort(-late[ending], kind="stable")]
    room = np.full(rounds, gpus)
    taken = []
    for row in order.tolist():
        free = np.flatnonzero(room >= at.gangs[row] - 1e-9)
        if len(free):
            room[free[0]] -= at.gangs[row]
            taken.append(row)
    least = np.zeros(len(late))
    least[taken] = np.minimum(at.left_s, np.maximum(at.epochs - at.over, 0.0) * at.epoch_s)[taken]
    return least


def _append_targets(
    targets: Mapping[JobId, TargetSeries],
    jobs: Sequence[JobId],
    at: RoundJobs,
    now: int,
    phi: float,
) -> dict[JobId, TargetSeries]:
    series = {}
    for row, job in enumerate(jobs):
        goal = float(target(at.submitted[row], at.past_s[row], at.left_s[row], phi))
        old = targets.get(job)
        series[job] = TargetSeries(now, now, goal) if old is None else old.append(now, goal)
    return series


def _place(
    view: View, rows: Sequence[int], held: Mapping[JobId, Allocation]
) -> dict[JobId, Allocation]:
    """Devices for rows: the same as before where those are free, else on the fewest nodes."""
    given: dict[JobId, Allocation] = {}
    jobs = [view.job(row) for row in rows]
    for job in jobs:
        if (on := held.get(job.id)) is not None and view.free.fits(on):
            view.free.take(on)
            given[job.id] = on
    for job in sorted(jobs, key=lambda job: -job.demand.gpus):
        if job.id not in given and (on := fewest_nodes(job, view.free)) is not None:
            view.free.take(on)
            given[job.id] = on
    return given


# ---- What a plan is made of: how far each job is, what it has left, how long its epochs take


UNKNOWN_S = 3600.0  # what a job is taken to have left that nothing is known about
NOTHING_SEEN = EpochsSoFar()


@frozen
class EpochProgress:
    """One job: epochs in all and over, seconds of one, seconds behind and predicted ahead."""

    epochs: float
    over: float
    epoch_s: float
    past_s: float
    left_s: float


@frozen
class RoundJobs:
    """The jobs of a view, as columns."""

    gangs: Floats
    submitted: Floats
    epochs: Floats
    over: Floats
    epoch_s: Floats
    past_s: Floats
    left_s: Floats


def read_progress(view: View, round_s: float, *, trusting: bool = False) -> RoundJobs:
    """By regimes where a job declares any; of others the predictor says what is left.

    A job that is still here has its last epoch before it, whatever was counted; unless counts are
    trusted, as the authors' code does.
    """
    table = view.table
    declared = [regimes_of(job) for job in table.jobs]
    ran, left = view.ran(), np.zeros(len(table))
    if any(regimes is None for regimes in declared):
        left = view.remaining()
    rows = [
        _by_time(ran[i], left[i], round_s)
        if regimes is None
        else _by_regimes(view, job, regimes, regimes.epochs - (0 if trusting else 1))
        for i, (job, regimes) in enumerate(zip(table.jobs, declared, strict=True))
    ]
    columns = np.array([(r.epochs, r.over, r.epoch_s, r.past_s, r.left_s) for r in rows])
    epochs, over, epoch_s, past_s, left_s = columns.reshape(len(rows), 5).T
    return RoundJobs(
        table.need.copy(), table.submitted.copy(), epochs, over, epoch_s, past_s, left_s
    )


def _by_regimes(view: View, job: Job, declared: Regimes, most: int) -> EpochProgress:
    seen = view.training.epochs(job) if view.training is not None else None
    if seen is None:
        seen = NOTHING_SEEN
    return EpochProgress(
        float(declared.epochs),
        float(min(seen.over, most)),
        mean_epoch_s(declared, seen),
        past_seconds(declared, seen),
        predict_remaining(declared, seen),
    )


def _by_time(ran: float, left: float, round_s: float) -> EpochProgress:
    """A job without regimes: its rounds are its epochs."""
    left = max(float(left) if isfinite(left) else UNKNOWN_S, 1.0)
    ran = float(ran)
    return EpochProgress((ran + left) / round_s, ran / round_s, round_s, ran, left)


# When jobs should end: what they would have had alone on their share, averaged over time.

MOMENTUM = 0.9


@frozen
class TargetSeries:
    """Targets of a job, each from the round it was set until the next one.

    `first` and `last` are rounds of the first and the last target, `value` is the last, and `area`
    the sum of those before it, each times the rounds it held.
    """

    first: int
    last: int
    value: float
    area: float = 0.0

    def append(self, at: int, value: float) -> TargetSeries:
        area = self.area + self.value * (at - self.last)
        return TargetSeries(self.first, at, value, area)

    def average(self, at: int) -> float:
        """Mostly the mean over the rounds until `at`, and a tenth the last target."""
        rounds = at - self.first
        if rounds <= 0:
            return self.value
        mean = (self.area + self.value * (at - self.last)) / rounds
        return MOMENTUM * mean + (1.0 - MOMENTUM) * self.value


def share(gpus: float, jobs: int) -> float:
    """The part of its time that each job would have a machine of its own; gangs do not count."""
    return min(1.0, gpus / jobs) if jobs else 1.0


def target(submitted: float, past_s: float, left_s: float, phi: float) -> float:
    """Return when a job ends that has a part `phi` of its request from its submission on."""
    return submitted + (past_s + left_s) / phi
