"""Seconds that jobs of one size must be given for one more end: by reports, predictions, the past.

What a predictor says is the inverse of its Gittins index: of many such jobs, given that they ran
for as long, that many seconds bring one to its end. It changes at doublings of a minute that a job
has run, or jobs would take turns; what holds at the next of these is asked for at once, and again
when a job is twice as old. A predictor that is certain of a length is taken at its word until the
job outlives it; then the job is thought to need as much again.

Jobs of one size: what is left of them, and what that makes them weigh.

With all GPUs in use, one more second of a job on `g` GPUs delays all jobs behind it: the fewest
GPU-seconds left go first, and a second of a job is worth its GPUs times its rank from the last.
"""

from __future__ import annotations

from dataclasses import field
from math import inf
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.predictor import Predictor
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.order.attained import (
    AttainedPast,
    gittins_index,
    past_service,
    step_above,
    step_at,
    step_below,
    steps_passed,
)

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
class LengthEstimates:
    """The memory: predictions of jobs, one row each, and the service of past jobs."""

    predicted: Floats = field(default_factory=lambda: NOTHING)
    past: AttainedPast | None = None


class PlainLeft(NamedTuple):
    """Seconds left of each row; rows that reported or of which nothing is predicted are marked."""

    seconds: Floats
    reported: Bools
    guessed: Bools
    estimates: LengthEstimates


def plain_left(view: View, known: Floats, before: LengthEstimates) -> PlainLeft:
    """Seconds left as `known` from reports, NaN elsewhere; else as predicted; else by the past."""
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
    estimates = LengthEstimates(predicted, past)
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
    old &= rows[:, LENGTH] > view.ran()  # it also counts restarts, which no prediction foresees
    if not old.all():
        rows[~old] = _ask(view, predictor, ~old, number[~old])
    return rows


def _ask(view: View, predictor: Predictor, which: Bools, number: Floats) -> Floats:
    """Predictions for these rows now, which have come to that many steps."""
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


def _read_past(view: View, before: AttainedPast | None) -> AttainedPast:
    """The service of past jobs, read again after some more ended."""
    seen = len(view.history)
    if before is not None and seen < before.seen + RENEW:
        return before
    return AttainedPast(seen, past_service(view.history))


def _guess(view: View, past: Floats) -> Floats:
    """Seconds by the Gittins index of the service up to the next doubling.

    Where no past job ended in between, as if less than one of them had.
    """
    service, need = view.service(), np.maximum(view.table.need, 1e-9)
    low, high = step_below(service, STEP), step_above(service, STEP)
    index = gittins_index(past, low, high - low)
    gpu_s = np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), len(past) * high)
    return np.asarray(gpu_s / need)


LATE = 3.0  # times what a job ran on its part of the cluster that it may wait
BEGUN_S = 10.0  # a job that ran for less is taken to have run for this long
STARTS = 2.0  # times that a start counts for a waiting job: it is lost, and another stops for it


def find_plain(view: View) -> Bools:
    """Rows of jobs that run on one number of GPUs, by one execution plan."""
    table = view.table
    mask: Bools = table.column(TableColumns.MIN) == table.column(TableColumns.MAX)
    if view.knowledge.plans is not None:
        mask &= [not job.plans for job in table.jobs]
    return mask


def charged_service(view: View, left: Floats, costs: Floats) -> Floats:
    """GPU-seconds left of each row; waiting jobs also have to start.

    `costs` are first starts and restarts, each of rows x kinds; the dearest kind counts.
    """
    young = view.table.column(TableColumns.REPORTED) == 0.0
    start = np.where(young, costs[0].max(axis=1), costs[1].max(axis=1))
    seconds = left + np.where(view.running(), 0.0, STARTS * start)
    service: Floats = seconds * view.table.need
    return service


def find_patience(view: View) -> Floats:
    """Seconds that each row may wait; one that has waited for longer goes before others.

    They are by what it has run, which takes longer on an equal part of the cluster if the gang is
    larger than its part. A late job that runs stays late until it has run for twice as long.
    """
    ran = np.maximum(view.ran(), BEGUN_S) * np.where(view.running(), 0.5, 1.0)
    part = view.cluster.gpus / max(len(view.table), 1)
    patience: Floats = LATE * ran * np.maximum(view.table.need / part, 1.0)
    return patience


def plain_weights(view: View, weights: Floats, service: Floats, plain: Bools) -> Floats:
    """The weights, where those of `plain` rows go by GPUs times rank of `service` among them.

    Jobs with as much left have the same rank. Their sum stays: how they fare against elastic jobs
    is not decided here.
    """
    _, where, count = np.unique(-service[plain], return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - 0.5 * (count - 1.0))[where]
    worth = np.maximum(view.table.need[plain], 1e-9) * rank
    changed = weights.copy()
    changed[plain] = worth * (weights[plain].sum() / max(worth.sum(), 1e-12))
    return changed
