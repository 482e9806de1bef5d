"""A plan that can be kept: counts whose gangs find room in the rounds of the window.

The program over counts knows the room of all rounds together. Where its counts cannot be packed, a
small window is solved again with a variable for each job and round, as the authors' program has
them; in a large one the jobs that lost rounds are held to what they found, and it is solved again.
"""

from __future__ import annotations

import numpy as np

from weft.core.state.table import Bools, Floats
from weft.frozen import frozen
from weft.policies.shockwave.rounds import order_early, place_rounds
from weft.policies.shockwave.welfare import GAP, Counts, Window, choose_counts, choose_rounds, value

SMALL = 120  # jobs times rounds
REPAIRS = 4
MORE = 0.05  # of what a plan is worth, for which one that matters less early is taken


@frozen
class Packed:
    """Who runs in which round, what that is worth, and the worth of counts that need no packing."""

    runs: Bools
    worth: float
    bound: float

    @property
    def gap(self) -> float:
        """What packing costs at most."""
        return max(self.bound - self.worth, 0.0)


def plan_rounds(window: Window, kappa: float, *, strict: bool = True) -> Packed | None:
    """The best plan found that can be kept; None where `least_s` cannot, and is `strict`."""
    counts = choose_counts(window, kappa)
    if counts is None:
        return None
    bound = value(window, counts, kappa)
    best = _pack(window, counts, kappa)
    if bound - value(window, best.sum(axis=1), kappa) > GAP * abs(bound) or _misses(window, best):
        exact = choose_rounds(window, kappa) if counts.size * window.rounds <= SMALL else None
        if exact is not None:
            best = _early(window, exact)
        else:
            best = _better(
                window, best, _early(window, _repair(window, counts, best, kappa)), kappa
            )
    if strict and _misses(window, best):
        return None
    return Packed(best, value(window, best.sum(axis=1), kappa), bound)


def _repair(window: Window, counts: Counts, best: Bools, kappa: float) -> Bools:
    """Hold those that lost rounds to what they found, and let the others have the rest."""
    most, tried = np.full(len(window), window.rounds), best
    for _ in range(REPAIRS):
        placed = tried.sum(axis=1)
        lost = placed < counts
        if not lost.any():
            break
        most = np.where(lost, np.minimum(most, placed), most)
        again = choose_counts(window, kappa, most=most)
        if again is None:
            break
        counts, tried = again, _pack(window, again, kappa)
        best = _better(window, best, tried, kappa)
    return best


def _better(window: Window, early: Bools, other: Bools, kappa: float) -> Bools:
    """Another plan, if it is worth much more; else the one in which those who matter come early."""
    (kept, worth), (keeps, more) = _rank(window, early, kappa), _rank(window, other, kappa)
    if kept != keeps:
        return other if keeps else early
    return other if more > worth + MORE * abs(worth) else early


def _rank(window: Window, runs: Bools, kappa: float) -> tuple[bool, float]:
    return not _misses(window, runs), value(window, runs.sum(axis=1), kappa)


def _misses(window: Window, runs: Bools) -> bool:
    return bool((window.run_s(runs.sum(axis=1)) < window.least_s - 1e-6).any())


def _pack(window: Window, counts: Counts, kappa: float) -> Bools:
    """Rounds for counts: those that matter most early; in other orders where some find no room."""
    gangs, rounds = window.gangs, window.rounds
    orders = (
        order_early(counts, gangs, window.weight),
        np.lexsort((-counts, -gangs)),
        np.argsort(-counts * gangs, kind="stable"),
    )
    best: Bools | None = None
    for order in orders:
        runs = place_rounds(counts, gangs, window.gpus, rounds, order)
        if best is None and runs.sum() == counts.sum():
            return runs
        runs = _fill(window, runs, kappa)
        best = runs if best is None else _better(window, best, _early(window, runs), kappa)
    assert best is not None
    return best


def _fill(window: Window, runs: Bools, kappa: float) -> Bools:
    """Rounds that gangs could not use, to whoever is worth most there."""
    runs = runs.copy()
    while True:
        room = window.gpus - window.gangs @ runs
        counts = runs.sum(axis=1)
        now = value(window, counts, kappa)
        gains = [
            (value(window, counts + (np.arange(len(counts)) == job), kappa) - now, -job)
            for job in range(len(counts))
            if (~runs[job] & (room >= window.gangs[job] - 1e-9)).any()
        ]
        gain, job = max(gains, default=(0.0, 0))
        if gain <= 1e-12:
            return runs
        free = ~runs[-job] & (room >= window.gangs[-job] - 1e-9)
        runs[-job, int(np.flatnonzero(free)[0])] = True


def _early(window: Window, runs: Bools) -> Bools:
    """As many rounds for each, those first that matter most early."""
    counts = runs.sum(axis=1)
    order = order_early(counts, window.gangs, window.weight)
    again = place_rounds(counts, window.gangs, window.gpus, window.rounds, order)
    if again.sum() == counts.sum():
        return again
    worth: Floats = window.weight / np.maximum(counts * window.gangs, 1e-9)
    return runs[:, np.argsort(-(worth @ runs), kind="stable")]
