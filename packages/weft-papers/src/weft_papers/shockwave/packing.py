"""A plan that can be kept: counts whose gangs find room in the rounds of the window.

The program over counts knows the room of all rounds together. Where its counts cannot be packed, a
small window is solved again with a variable for each job and round, as the authors' program has
them; in a large one each round is given, one after the other and as long as that helps, to those
that are worth most in it beside what the other rounds give them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft_papers.shockwave.welfare import (
    GAP,
    Counts,
    RoundWindow,
    choose_counts,
    choose_rounds,
    log_progress,
    value,
)

SMALL = 120  # jobs times rounds
PASSES = 8
PARTS = 100  # of a GPU, where gangs are not whole
EPS = 1e-9


@frozen
class RoundSchedule:
    """Jobs of each round, their worth, and the worth of counts that need no packing."""

    runs: Bools
    worth: float
    bound: float

    @property
    def gap(self) -> float:
        return max(self.bound - self.worth, 0.0)


def plan_rounds(window: RoundWindow, kappa: float, *, strict: bool = True) -> RoundSchedule | None:
    """The best plan found that can be kept; None where `least_s` cannot, and is `strict`."""
    counts = choose_counts(window, kappa)
    if counts is None:
        return None
    bound = value(window, counts, kappa)
    best = _place(window, counts)
    if best.sum() < counts.sum():
        exact = choose_rounds(window, kappa) if counts.size * window.rounds <= SMALL else None
        best = _early(window, _search(window, counts, kappa) if exact is None else exact)
    if strict and _missing(window, best.sum(axis=1)).any():
        return None
    return RoundSchedule(best, value(window, best.sum(axis=1), kappa), bound)


def _place(window: RoundWindow, counts: Counts, order: Rows | None = None) -> Bools:
    """Rounds for counts, those first that matter most early; fewer where gangs find no room."""
    if order is None:
        order = order_early(counts, window.gangs, window.weight)
    return place_rounds(counts, window.gangs, window.gpus, window.rounds, order)


def _search(window: RoundWindow, counts: Counts, kappa: float) -> Bools:
    """The best of what exchanges make of some orders; the first where others hardly add to it."""
    longest = float((window.left_s - window.run_s(counts)).max(initial=0.0))
    bound, gangs = value(window, counts, kappa), window.gangs
    slack = GAP * abs(bound)
    best, rank = _place(window, counts), (-np.inf, -np.inf)
    for order in (None, np.lexsort((-counts, -gangs)), np.argsort(-counts * gangs, kind="stable")):
        if rank > (0.0, bound - slack):
            break
        runs = _exchange(window, _place(window, counts, order), kappa, longest)
        missing = -float(_missing(window, runs.sum(axis=1)).sum())
        new = (missing, value(window, runs.sum(axis=1), kappa))
        if new > (rank[0], rank[1] + slack):
            best, rank = runs, new
    return best


def _missing(window: RoundWindow, counts: Counts) -> Floats:
    """Seconds of what each job must be run, beyond these rounds."""
    short = window.least_s - window.run_s(counts)
    return np.asarray(np.where(short > 1e-6, short, 0.0))


def _exchange(window: RoundWindow, runs: Bools, kappa: float, longest: float) -> Bools:
    """Each round to the jobs that are worth most in it, as long as that helps.

    The last rounds change first: early ones are those that come to pass before the next plan.
    """
    runs, changed = runs.copy(), True
    for _ in range(PASSES):
        if not changed:
            break
        changed = False
        for at in reversed(range(window.rounds)):
            others = runs.sum(axis=1) - runs[:, at]
            gains = _gains(window, others, kappa, longest)
            chosen = _fit_best(gains, window.gangs, window.gpus)
            if gains.of(chosen) > gains.with_slack(runs[:, at]):
                runs[:, at], changed = chosen, True
    return runs


class _Gains(NamedTuple):
    """Gains by one round more of each job: milliseconds that it must be run, then welfare."""

    must_ms: Floats
    more: Floats

    def of(self, jobs: Bools) -> tuple[float, float]:
        return float(self.must_ms[jobs].sum()), float(self.more[jobs].sum())

    def with_slack(self, jobs: Bools) -> tuple[float, float]:
        """Return the sum with as much more as sums of floats may be off by."""
        must_ms, more = self.of(jobs)
        return must_ms, more * (1.0 + 1e-9) + 1e-12


def _gains(window: RoundWindow, counts: Counts, kappa: float, longest: float) -> _Gains:
    """Return what each job gains by one round more.

    Every job with more than `longest` seconds left counts, not the one with the most alone: no
    single one of several could make that shorter.
    """
    run, more = window.run_s(counts), window.run_s(counts + 1)
    done = [log_progress((window.over + s / window.epoch_s) / window.epochs) for s in (run, more)]
    gain = window.weight * (done[1] - done[0]) / (len(window) * window.rounds)
    left = [np.maximum(window.left_s - s - longest, 0.0) for s in (run, more)]
    gain += kappa * (left[0] - left[1])
    must = _missing(window, counts) - _missing(window, counts + 1)
    return _Gains(np.ceil(1e3 * must), gain)  # whole numbers, whose sums are equal or not


def _fit_best(gains: _Gains, gangs: Floats, gpus: float) -> Bools:
    """The jobs that are worth the most together and fit beside each other."""
    parts = 1 if (gangs % 1.0 == 0.0).all() else PARTS
    need = np.ceil(gangs * parts - 1e-6).astype(int)
    room = int(gpus * parts + 1e-6)
    must, more, taken = np.zeros(room + 1), np.zeros(room + 1), []
    some = ((gains.must_ms > 0.0) | (gains.more > 0.0)) & (need <= room)
    for job in np.flatnonzero(some).tolist():
        at = slice(need[job], None)
        with_must = must[: room + 1 - need[job]] + gains.must_ms[job]
        with_more = more[: room + 1 - need[job]] + gains.more[job]
        better = (with_must > must[at]) | ((with_must == must[at]) & (with_more > more[at]))
        must[at] = np.where(better, with_must, must[at])
        more[at] = np.where(better, with_more, more[at])
        taken.append((job, np.append(np.zeros(need[job], dtype=bool), better)))
    chosen = np.zeros(len(gangs), dtype=bool)
    for job, take in reversed(taken):
        if take[room]:
            chosen[job] = True
            room -= need[job]
    return chosen


def _early(window: RoundWindow, runs: Bools) -> Bools:
    """As many rounds for each, those first that matter most early; as it is where that fails."""
    counts = runs.sum(axis=1)
    again = _place(window, counts)
    return again if again.sum() == counts.sum() else runs


# ---- From counts to rounds: which jobs run when in the window, and which fill what is idle


def place_rounds(counts: Counts, gangs: Floats, gpus: float, rounds: int, order: Rows) -> Bools:
    """Jobs x rounds: round by round jobs that must run in all that is left, then as in `order`.

    With single GPUs every job gets its count: jobs that must run always fit, for all counts
    together do. Gangs may leave gaps, and a job then gets fewer rounds; fillers take those.
    """
    left = counts.copy()
    runs = np.zeros((len(counts), rounds), dtype=bool)
    for now in range(rounds):
        room = gpus
        must = left[order] >= rounds - now
        for job in np.concatenate([order[must], order[~must]]).tolist():
            if left[job] > 0 and gangs[job] <= room + EPS:
                runs[job, now] = True
                left[job] -= 1
                room -= gangs[job]
    return runs


def order_early(counts: Counts, gangs: Floats, weight: Floats) -> Rows:
    """Jobs by how much a GPU-round of theirs that comes early is worth.

    Greedy for the least sum of weights times mean rounds; large gangs go first among equals, since
    they find gaps last.
    """
    worth = weight / np.maximum(counts * gangs, EPS)
    return np.lexsort((-gangs, -worth))


def fill(idle: float, gangs: Floats, left_s: Floats, waiting: Sequence[int]) -> list[int]:
    """Jobs for idle GPUs: the longest predicted remainder first, if its gang fits."""
    chosen = []
    for job in sorted(waiting, key=lambda j: -left_s[j]):
        if gangs[job] <= idle + EPS:
            chosen.append(job)
            idle -= gangs[job]
    return chosen
