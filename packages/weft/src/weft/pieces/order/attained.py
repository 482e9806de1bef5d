"""Orders by what jobs have received: least first, whole or by queue, and by Gittins index.

The Gittins index is over an empirical distribution of total service.
`G(a, D) = P(S - a <= D | S > a) / E[min(S - a, D) | S > a]`: the chance that a job which has
attained `a` ends within `D` more, over the service it is expected to use until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.plan.about import About, Needs
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import NeededKnowledge, Objective, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.order.keys import RestingOrder
from weft.pieces.pack import start_all, start_newcomer
from weft.pieces.parts import NextDecision, Ranking
from weft.pieces.place.gangs import Placer


def steps_passed(attained: Floats, least: Floats | float) -> Floats:
    """The number of steps that were reached; 0 below the least."""
    times = np.floor(np.log2(np.maximum(attained / least, 1.0)) + 1e-9)
    count: Floats = np.where(attained < least, 0.0, times + 1.0)
    return count


def step_at(number: Floats, least: Floats | float) -> Floats:
    """The service that the step of this number takes; step 0 is nothing."""
    step: Floats = np.where(number > 0.0, least * 2.0 ** (number - 1.0), 0.0)
    return step


def step_below(attained: Floats, least: Floats | float) -> Floats:
    """The last step that was reached; 0 below the least."""
    return step_at(steps_passed(attained, least), least)


def step_above(attained: Floats, least: Floats | float) -> Floats:
    """The next step, always beyond what is attained."""
    return step_at(steps_passed(attained, least) + 1.0, least)


# Median and spread of the GPU-times (seconds) published with the Tiresias simulator.
PRIOR_MEDIAN = 2227.0
PRIOR_SIGMA = 2.6


def gittins_index(samples: Floats, attained: Floats, quantum: Floats | float) -> Floats:
    """The index of jobs that attained `attained` for the service quantum; 0 beyond all samples."""
    s = np.sort(samples)
    prefix = np.concatenate([[0.0], np.cumsum(s)])
    a = np.asarray(attained, dtype=float)
    low = np.searchsorted(s, a, side="right")
    high = np.searchsorted(s, a + quantum, side="right")
    ending = high - low
    used = prefix[high] - prefix[low] - ending * a + (len(s) - high) * quantum
    index: Floats = np.divide(ending, used, out=np.zeros_like(a), where=used > 0.0)
    return index


def best_gittins_index(samples: Floats, attained: Floats) -> Floats:
    """The supremum of the index over all quanta that end at a sample.

    It is very high just before each sample: where it decides which jobs run, jobs take turns that
    nothing but the choice of samples explains. `coarse_gittins_index` is for that.
    """
    s = np.unique(samples)
    a = np.asarray(attained, dtype=float)
    quanta = s[None, :] - a[:, None]
    index = gittins_index(samples, np.repeat(a, len(s)), np.maximum(quanta, 0.0).ravel())
    best: Floats = np.where(quanta > 0.0, index.reshape(quanta.shape), 0.0).max(axis=1, initial=0.0)
    return best


def coarse_gittins_index(samples: Floats, attained: Floats, least: Floats | float = 60.0) -> Floats:
    """The index in doublings of service: it changes when a job has attained `least`, twice that...

    Quanta are as long as the next doubling at least, so that no single sample decides.
    """
    a = np.asarray(attained, dtype=float)
    level, first = step_below(a, least), np.broadcast_to(np.asarray(least, dtype=float), a.shape)
    levels, where = np.unique(np.stack([level, first]), axis=1, return_inverse=True)
    shortest = levels.max(axis=0)[:, None]
    quanta = np.maximum(np.unique(samples)[None, :] - levels[0][:, None], shortest)
    index = gittins_index(samples, np.repeat(levels[0], quanta.shape[1]), quanta.ravel())
    best: Floats = index.reshape(quanta.shape).max(axis=1, initial=0.0)[where]
    return best


def past_service(
    history: Floats,
    min_samples: int = 100,
    median: float = PRIOR_MEDIAN,
    sigma: float = PRIOR_SIGMA,
) -> Floats:
    """The distribution of total service: quantiles of the recent past, else a log-normal prior."""
    if len(history) < min_samples:
        z = np.array([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])
        return np.asarray(median * np.exp(sigma * z))
    recent = history[-4096:]
    return recent if len(recent) <= 256 else np.quantile(recent, (np.arange(256) + 0.5) / 256)


YOUNG = declare(Objective.COMPLETION_TIME, NeededKnowledge.NOTHING)
PAST = declare(Objective.COMPLETION_TIME, NeededKnowledge.PAST_JOBS)


@frozen
class AttainedService:
    """The least received so far first, in seconds or in GPU-seconds.

    `by` is `gpu-time` or `time`; `thresholds` joined by `/` make queues; inside a queue running
    jobs come first (`rule=sticky`) or jobs in order of their first start (`rule=start`).
    """

    by: Literal["gpu-time", "time"] = "gpu-time"
    thresholds: tuple[float, ...] = ()
    rule: Literal["sticky", "start"] = "sticky"
    quantum: float = 360.0

    about = About("las", "Nuyens and Wierman 2008; Gu et al. 2019", taxonomy=YOUNG)
    admits = "preempt"

    def __post_init__(self) -> None:
        if self.quantum <= 0:
            raise InvalidConfig(f"las: quantum={self.quantum:g} must be above 0 seconds")

    def settle(self, view: View, place: Placer) -> Plan | None:
        """Nothing to do where no job waits; with queues, where all fit beside each other."""
        if self.thresholds:
            return settle_queues(view, self._queues, place)
        plan = start_newcomer(view, place)
        return plan and replace(plan, wake_at=view.now + self.quantum if plan.changes else None)

    def rank(self, view: View) -> Ranking:
        """By attained service, looked at again in a quantum; or by queue."""
        if self.thresholds:
            return rank_queues(view, self._queues)
        attained = view.ran() if self.by == "time" else view.service()
        return Ranking(key=attained, later=NextDecision(view.now + self.quantum))

    @property
    def _queues(self) -> Queues:
        return Queues(self.thresholds, self.by == "time", self.rule == "sticky")


@frozen
class QueuedService:
    """Young jobs first, by queue of attained GPU-seconds, or by Gittins index inside a queue.

    `thresholds` are GPU-seconds joined by `/`; `knob` promotes a job that has waited that many
    times what it ran (none: never).
    """

    thresholds: tuple[float, ...] = (3250.0,)
    priority: Literal["las", "gittins"] = "las"
    rule: Literal["sticky", "start"] = "sticky"
    knob: float | None = None

    admits = "preempt"

    @property
    def about(self) -> About:
        """Gittins also reads the past."""
        past = self.priority == "gittins"
        return About(
            "tiresias",
            "Gu et al. 2019",
            needs=Needs.HISTORY if past else Needs.NOTHING,
            starves="" if self.knob else "a stream of young jobs",
            taxonomy=PAST if past else YOUNG,
        )

    def __post_init__(self) -> None:
        if list(self.thresholds) != sorted(set(self.thresholds)) or not self.thresholds:
            raise InvalidConfig(
                f"tiresias: thresholds {self.thresholds} must be increasing",
                hint="for example tiresias:thresholds=3250/7200",
            )

    def settle(self, view: View, place: Placer) -> Plan | None:
        """No job is ranked where all fit beside each other."""
        return settle_queues(view, self._queues, place)

    def rank(self, view: View) -> Ranking:
        return rank_queues(view, self._queues, self._by_index)

    @property
    def _queues(self) -> Queues:
        knob = np.inf if self.knob is None else self.knob
        return Queues(self.thresholds, sticky=self.rule == "sticky", knob=knob)

    def _by_index(self, view: View, standing: AttainedStanding) -> Rows:
        """Queue by queue by Gittins index of the queue's quantum; first come in the last."""
        if self.priority == "las":
            return self._queues.order(view, standing)
        quantum = np.append(self.thresholds, 1.0)[standing.queue.astype(int)]
        attained = view.service() - standing.service0
        index = gittins_index(past_service(view.history), attained, quantum)
        index[standing.queue >= len(self.thresholds)] = 0.0
        return view.ranked(standing.queue, -index)


@frozen
class AttainedPast:
    """The memory: total service of past jobs, after `seen` of them had finished."""

    seen: int
    service: Floats


@frozen
class GittinsIndex(RestingOrder):
    """The highest chance to end soon for the service it takes first, by the service of past jobs.

    `optimal` takes the supremum over all quanta instead of the next step's.
    """

    quantum: float = 3250.0
    optimal: bool = False
    min_samples: int = 100
    prior_median: float = PRIOR_MEDIAN
    prior_sigma: float = PRIOR_SIGMA

    about = About(
        "gittins",
        "Gu et al. 2019",
        needs=Needs.HISTORY,
        starves="jobs beyond all past service",
        taxonomy=PAST,
    )
    admits = "preempt"

    def __post_init__(self) -> None:
        if self.quantum <= 0:
            raise InvalidConfig(f"gittins: quantum={self.quantum:g} must be above 0 GPU-seconds")

    def settle(self, view: View, _place: Placer) -> Plan | None:
        """Only the past is followed where no job waits."""
        return None if view.table.waiting else Plan(memory=self._past(view))

    def rank(self, view: View) -> Ranking:
        """By index, highest first; looked at again when a running job climbs a step."""
        past, served = self._past(view), view.service()
        step = np.floor(np.log2(np.maximum(served / self.quantum, 0.5) + 1e-9)) + 1.0
        low = np.where(step > 0.0, self.quantum * 2.0 ** (step - 1.0), 0.0)
        high = self.quantum * 2.0**step
        if self.optimal:
            index = best_gittins_index(past.service, low)
        else:
            index = gittins_index(past.service, low, high - low)

        def later(running: Bools) -> NextDecision:
            left = (high - served)[running] / view.table.need[running]
            soonest = float(left.min(initial=np.inf))
            wake = view.now + max(soonest, 1e-6) if np.isfinite(soonest) else None
            return NextDecision(wake, past)

        return Ranking(key=-index, later=later)

    def _past(self, view: View) -> AttainedPast:
        """The distribution, refreshed as jobs finish; it changes slowly, so not every time."""
        seen = len(view.history)
        old = view.memory
        if isinstance(old, AttainedPast) and seen < old.seen + self.min_samples:
            return old
        args = self.min_samples, self.prior_median, self.prior_sigma
        return AttainedPast(seen, past_service(view.history, *args))


@frozen
class PredictedIndex(RestingOrder):
    """Gittins index by the predicted distribution of each job, not by one of all jobs.

    What a job has executed counts in doublings of `least_s` seconds.
    """

    least_s: float = 60.0

    about = About(
        "gittins-predicted",
        "Gu et al. 2019",
        needs=Needs.REMAINING,
        starves="jobs that are not expected to end",
        taxonomy=PAST,
    )
    admits = "preempt"

    def __post_init__(self) -> None:
        if self.least_s <= 0:
            raise InvalidConfig(f"gittins-predicted: least_s={self.least_s:g} must be above 0")

    def rank(self, view: View) -> Ranking:
        """By chance to end per GPU-second; looked at again when a running job has doubled."""
        predictor, ran, need = view.predictor(), view.ran(), view.table.need
        steps = step_below(ran, self.least_s)
        index = predictor.index_at(view.table, view.now, steps[:, None])[:, 0] / need

        def later(running: Bools) -> NextDecision:
            left = (step_above(ran, self.least_s) - ran)[running]
            soonest = float(left.min(initial=np.inf))
            return NextDecision(view.now + max(soonest, 1e-6) if np.isfinite(soonest) else None)

        return Ranking(key=-index, later=later)


def settle_queues(view: View, queues: Queues, place: Placer) -> Plan | None:
    """Start all jobs where all fit: no order matters; queues are updated when one does."""
    if queues.promotes or (plan := start_all(view, place)) is None:
        return None
    return Plan(plan.changes, memory=view.memory)


def rank_queues(
    view: View, queues: Queues, order: Callable[[View, AttainedStanding], Rows] | None = None
) -> Ranking:
    """Scan the queues in order; look again when the next job sinks or rises."""
    standing = queues.find_standing(view)
    rows = (order or queues.order)(view, standing)

    def later(running: Bools) -> NextDecision:
        wake = queues.next_change(view, standing, running)
        return NextDecision(wake, queues.remember(standing, rows, running))

    return Ranking(rows, later=later)


# ---- Discretised queues: jobs sink as they attain service, and order inside a queue is kept
#
# The multi-level feedback queues of Tiresias (NSDI 2019): equal jobs are not time-sliced, so
# far fewer are preempted than under continuous least attained service.


EPS = 1e-6
EXISTING, ARRIVED, MOVED = 0.0, 1.0, 2.0


@frozen
class AttainedStanding:
    """The queue and place of each job, by submission number: a policy's memory between decisions.

    `place` is its position in the last scan. `service0`, `ran0` and `wait0` are the meters at
    its last promotion; what counts is what came after.
    """

    seq: Floats
    queue: Floats
    place: Floats
    service0: Floats
    ran0: Floats
    wait0: Floats


@frozen
class Queues:
    """Thresholds of attained service, the rule inside a queue, and the starvation knob.

    `by_time` counts seconds executed instead of GPU-seconds. `sticky` keeps queues as lists,
    running jobs before waiting ones; otherwise the order is by first start. A waiting job
    of a later queue whose wait reaches `knob` times what it ran is promoted to the first.
    """

    thresholds: tuple[float, ...]
    by_time: bool = False
    sticky: bool = True
    knob: float = np.inf

    @property
    def promotes(self) -> bool:
        """True if waiting alone can move a job."""
        return bool(np.isfinite(self.knob))

    def find_standing(self, view: View) -> AttainedStanding:
        """Every active job's queue and place now: arrivals, promotions and demotions included."""
        table, before = view.table, view.memory
        n = len(table)
        if not isinstance(before, AttainedStanding):
            before = AttainedStanding(*(np.zeros(0) for _ in range(6)))
        at = np.searchsorted(before.seq, table.seq)
        known = at < len(before.seq)
        known[known] = before.seq[at[known]] == table.seq[known]
        rows = at[known]

        def recall(past: Floats) -> Floats:
            column = np.zeros(n)
            column[known] = past[rows]
            return column

        queue, place = recall(before.queue), recall(before.place)
        service0 = ran0 = wait0 = np.zeros(n)
        arrival = np.where(known, EXISTING, ARRIVED)
        if self.promotes:
            service0, ran0, wait0 = map(recall, (before.service0, before.ran0, before.wait0))
            sunk = np.maximum(queue, self._queue_of(self._attained(view, service0, ran0)))
            promoted = self._promote(view, sunk, service0, ran0, wait0)
            queue[promoted], arrival[promoted] = 0.0, MOVED
        attained = self._attained(view, service0, ran0)
        now_in = self._queue_of(attained)
        demoted = now_in > queue
        queue[demoted], arrival[demoted] = now_in[demoted], MOVED
        # Newcomers to a queue stand behind everyone else: arrivals, then moves as they happened.
        place = np.where(arrival > EXISTING, n * (1.0 + arrival) + len(before.seq), place)
        place[demoted] += self._sunk_for(view, attained, queue, demoted)
        return AttainedStanding(table.seq.copy(), queue, place, service0, ran0, wait0)

    def order(self, view: View, standing: AttainedStanding) -> Rows:
        """The scan: queue by queue, inside a queue by the rule."""
        inside = standing.place if self.sticky else view.table.started
        return view.ranked(standing.queue, inside)

    def remember(self, standing: AttainedStanding, order: Rows, running: Bools) -> AttainedStanding:
        """The lists after a pass: in each queue running jobs now precede waiting ones."""
        # Of small whole numbers, which numpy sorts in linear time.
        group = 2 * standing.queue[order].astype(np.int16) + ~running[order]
        order = order[np.argsort(group, kind="stable")]
        place = np.empty(len(order))
        place[order] = np.arange(len(order))
        return AttainedStanding(
            standing.seq, standing.queue, place, standing.service0, standing.ran0, standing.wait0
        )

    def next_change(self, view: View, standing: AttainedStanding, running: Bools) -> float | None:
        """The time at which the next running job sinks, or the next waiting one is promoted."""
        times = [np.inf]
        limits = np.append(self.thresholds, np.inf)[standing.queue.astype(int)]
        sinking = running & np.isfinite(limits)
        if sinking.any():
            speed = 1.0 if self.by_time else view.table.need[sinking]
            attained = self._attained(view, standing.service0, standing.ran0)[sinking]
            times.append(float(((limits[sinking] - attained) / speed).min()))
        if self.promotes:
            ran = view.ran() - standing.ran0
            due = self.knob * ran - (view.waited() - standing.wait0)
            rising = ~running & (ran > 0.0) & (standing.queue > 0.0)
            if rising.any():
                times.append(float(due[rising].min()))
        soonest = min(times)
        return None if soonest == np.inf else view.now + max(soonest, EPS)

    def _queue_of(self, attained: Floats) -> Rows:
        return np.searchsorted(self.thresholds, attained + EPS, side="right")

    def _attained(self, view: View, service0: Floats, ran0: Floats) -> Floats:
        return view.ran() - ran0 if self.by_time else view.service() - service0

    def _sunk_for(self, view: View, attained: Floats, queue: Floats, rows: Bools) -> Floats:
        """Minus the seconds since each of `rows` came into its queue, squeezed into (-1, 0]."""
        limits = np.array([0.0, *self.thresholds])[queue[rows].astype(int)]
        speed = 1.0 if self.by_time else view.table.need[rows]
        since = np.maximum(attained[rows] - limits, 0.0) / speed
        squeezed: Floats = -since / (1.0 + since)
        return squeezed

    def _promote(
        self, view: View, queue: Floats, service0: Floats, ran0: Floats, wait0: Floats
    ) -> Bools:
        ran, waited = view.ran(), view.waited()
        fresh = ran - ran0 <= 0.0
        wait0[fresh] = waited[fresh]
        starved = waited - wait0 >= self.knob * (ran - ran0) - EPS
        promoted: Bools = view.waiting() & (queue > 0.0) & ~fresh & starved
        service0[promoted] = view.service()[promoted]
        ran0[promoted], wait0[promoted] = ran[promoted], waited[promoted]
        return promoted
