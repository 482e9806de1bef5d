"""Seconds that jobs of one size must be given for one more end: by reports, predictions, the past.

What a predictor says is the inverse of its Gittins index: of many such jobs, given that they ran
for as long, that many seconds bring one to its end. It changes at doublings of a minute that a job
has run, or jobs would take turns; what holds at the next of these is asked for at once, and again
when a job is twice as old. A predictor that is certain of a length is taken at its word until the
job outlives it; then the job is thought to need as much again.
"""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.predictor import Predictor
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.order.attained import Past
from weft.pieces.order.doublings import step_above, step_at, step_below, steps_passed
from weft.pieces.order.gittins import gittins_index, past_service

MINUTE = 60.0
LEAST_S = 1.0
AHEAD = 5  # doublings that are asked for at once
YOUNG_S = 600.0  # what is predicted of a job holds for as long, and for as long as it is old
STEP = 3250.0  # GPU-seconds of the first step, then doubled, where there is no prediction
RENEW = 100  # ends after which the past is read again


# Columns of what was predicted: order of submission, until when that holds, the number of the first
# step, and how long the job runs in all where the predictor is certain, else infinite. Seconds for
# one more end follow: of that step and the next ones.
SEQ, UNTIL, FIRST, LENGTH, SECONDS = range(5)
NOTHING: Floats = np.zeros((0, SECONDS + AHEAD))


@frozen
class Estimates:
    """What to remember: predictions of jobs, one row each, and the service of past jobs."""

    predicted: Floats = field(default_factory=lambda: NOTHING)
    past: Past | None = None


class PlainLeft(NamedTuple):
    """Seconds left of each row; rows that reported or of which nothing is predicted are marked."""

    seconds: Floats
    reported: Bools
    guessed: Bools
    estimates: Estimates


def plain_left(view: View, known: Floats, before: Estimates) -> PlainLeft:
    """What is `known` from reports, NaN elsewhere; else what is predicted; else by the past."""
    predictor, seconds = view.knowledge.predictor, np.full(len(view.table), inf)
    predicted, past = before.predicted, before.past
    if predictor is not None:
        number = steps_passed(view.ran(), MINUTE)
        predicted = _predict(view, predictor, predicted, number)
        seconds = _read(view, predicted, number)
    reported, guessed = np.isfinite(known), ~np.isfinite(seconds)
    if guessed.any():
        past = _read_past(view, past)
        seconds = np.where(guessed, _guess(view, past.service), seconds)
    seconds = np.where(reported, known, seconds)
    estimates = Estimates(predicted, past)
    return PlainLeft(np.maximum(seconds, LEAST_S), reported, guessed, estimates)


def next_rise(view: View, left: PlainLeft, rows: Bools, above: Floats) -> float:
    """Seconds until the first of these rows, if they run, has more left than `above`, of each.

    Where nothing is predicted it is until anything changes. Infinite if only an end will tell.
    """
    silent = rows & ~left.reported
    guessed = silent & left.guessed
    soonest = inf
    if guessed.any():
        service, need = view.service()[guessed], np.maximum(view.table.need[guessed], 1e-9)
        soonest = float(((step_above(service, STEP) - service) / need).min())
    silent &= ~left.guessed
    if not silent.any():
        return soonest
    times, then = _foresee(view.ran()[silent], left.estimates.predicted[silent])
    times = times[(times > 0.0) & (then > above[silent, None])]
    return min(soonest, float(times.min(initial=inf)))


def _foresee(ran: Floats, predicted: Floats) -> tuple[Floats, Floats]:
    """Rows x changes: in how many seconds of running, and what is left then; it ends unknown."""
    length, later = predicted[:, LENGTH], np.arange(AHEAD + 1.0)
    certain, first, then = np.isfinite(length), predicted[:, FIRST], predicted[:, SECONDS:]
    if certain.any():
        first = np.where(certain, steps_passed(np.maximum(length, ran), MINUTE), first)
    steps = step_at(first[:, None] + later, MINUTE)
    times = steps - ran[:, None]
    if certain.any():
        then = np.where(certain[:, None], steps[:, 1:], then)
        times[certain, 0] = (length - ran)[certain]
    return times, np.column_stack([then, np.full(len(ran), inf)])


def _predict(view: View, predictor: Predictor, before: Floats, number: Floats) -> Floats:
    """Of all rows, come to that many steps, what was predicted before where that still holds."""
    seq = view.table.seq
    if not len(before):
        return _ask(view, predictor, np.ones(len(seq), dtype=bool), number)
    at = np.searchsorted(before[:, SEQ], seq)
    rows = before.take(at, axis=0, mode="clip")
    ahead = number - rows[:, FIRST]
    old = (rows[:, SEQ] == seq) & (view.now < rows[:, UNTIL]) & (ahead >= 0.0) & (ahead < AHEAD)
    if not old.all():
        rows[~old] = _ask(view, predictor, ~old, number[~old])
    return rows


def _ask(view: View, predictor: Predictor, which: Bools, number: Floats) -> Floats:
    """What is predicted now of these rows, which have come to that many steps."""
    table = view.table if which.all() else view.table.pick(which)
    rows = np.empty((len(table), SECONDS + AHEAD))
    rows[:, SEQ], rows[:, FIRST] = table.seq, number
    rows[:, UNTIL] = view.now + np.maximum(view.now - table.submitted, YOUNG_S)
    rows[:, LENGTH], rows[:, SECONDS:] = predictor.known_lengths(table, view.now), inf
    if not np.isfinite(rows[:, LENGTH]).all():
        steps = step_at(number[:, None] + np.arange(AHEAD), MINUTE)
        index = predictor.index_at(table, view.now, steps)
        rows[:, SECONDS:] = np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), inf)
    return rows


def _read(view: View, predicted: Floats, number: Floats) -> Floats:
    """Seconds for one more end; infinite where unknown."""
    ran, length = view.ran(), predicted[:, LENGTH]
    column = (SECONDS + number - predicted[:, FIRST]).astype(np.intp)
    seconds = predicted[np.arange(len(ran)), column]
    certain = np.isfinite(length)
    if certain.any():
        rest = np.where(length > ran, length - ran, step_at(number + 1.0, MINUTE))
        seconds = np.where(certain, rest, seconds)
    return seconds


def _read_past(view: View, before: Past | None) -> Past:
    """The service of past jobs, read again after some more ended."""
    seen = len(view.history)
    if before is not None and seen < before.seen + RENEW:
        return before
    return Past(seen, past_service(view.history))


def _guess(view: View, past: Floats) -> Floats:
    """Seconds by the Gittins index of the service up to the next doubling.

    Where no past job ended in between, as if less than one of them had.
    """
    service, need = view.service(), np.maximum(view.table.need, 1e-9)
    low, high = step_below(service, STEP), step_above(service, STEP)
    index = gittins_index(past, low, high - low)
    gpu_s = np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), len(past) * high)
    return np.asarray(gpu_s / need)
