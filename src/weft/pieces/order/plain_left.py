"""Seconds that jobs of one size must be given for one more end: by reports, predictions, the past.

What a predictor says is the inverse of its Gittins index: of many such jobs, given that they ran
for as long, so many seconds bring one to its end. It is asked anew at doublings of a minute that a
job has run, or jobs would take turns. A predictor that is certain of a length is taken at its word
until the job outlives it; then the job is thought to need as much again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from weft.core.model.job import JobId
from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats, Rows
from weft.pieces.order.attained import Past
from weft.pieces.order.doublings import step_above, step_below
from weft.pieces.order.gittins import gittins_index, past_service

MINUTE = 60.0
LEAST_S = 1.0
STEP = 3250.0  # GPU-seconds that what nobody predicts is looked at in doublings of
RENEW = 100  # ends after which the past is read again


@dataclass(frozen=True, slots=True)
class Estimate:
    """What was predicted of a job as it came to `step`: seconds for one more end.

    `total` is how long it runs in all, where the predictor is certain; else infinite.
    """

    step: float
    seconds: float
    total: float = inf


@dataclass(frozen=True, slots=True)
class Estimates:
    """What to remember: predictions of jobs that have run, and the service of past jobs."""

    of_job: Mapping[JobId, Estimate] = field(default_factory=dict)
    past: Past | None = None


class PlainLeft(NamedTuple):
    """Seconds left of each row, and for how long of its running that stays so."""

    seconds: Floats
    lasts: Floats
    estimates: Estimates


def plain_left(view: View, known: Floats, before: Estimates) -> PlainLeft:
    """What is `known` from reports, NaN elsewhere; else what is predicted; else by the past."""
    seconds, lasts, of_job = _predict(view, before.of_job)
    past, unknown = before.past, ~np.isfinite(seconds)
    if unknown.any():
        past = _read_past(view, past)
        guessed, holds = _guess(view, past.service)
        seconds = np.where(unknown, guessed, seconds)
        lasts = np.where(unknown, holds, lasts)
    reported = np.isfinite(known)
    seconds, lasts = np.where(reported, known, seconds), np.where(reported, inf, lasts)
    return PlainLeft(np.maximum(seconds, LEAST_S), lasts, Estimates(of_job, past))


def _predict(
    view: View, before: Mapping[JobId, Estimate]
) -> tuple[Floats, Floats, dict[JobId, Estimate]]:
    """Seconds for one more end, infinite where nobody knows; jobs that have run by their step."""
    table, ran = view.table, view.ran()
    predictor = view.knowledge.predictor
    seconds, lasts = np.full(len(table), inf), np.full(len(table), inf)
    if predictor is None:
        return seconds, lasts, {}
    begun = np.flatnonzero(ran > 0.0)
    if len(begun) < len(table):
        fresh: Bools = ran <= 0.0
        index = predictor.index(table.pick(fresh) if len(begun) else table, view.now)
        seconds[fresh] = lasts[fresh] = _invert(index)
    if not len(begun):
        return seconds, lasts, {}
    now, ids = ran[begun], [table.jobs[row].id for row in begun.tolist()]
    low, high = step_below(now, MINUTE), step_above(now, MINUTE)
    of_job = _renew(view, begun, ids, low, before)
    total = np.array([of_job[name].total for name in ids])
    held = np.array([of_job[name].seconds for name in ids])
    certain, rest = np.isfinite(total), total - now
    seconds[begun] = np.where(certain, np.where(rest > 0.0, rest, high), held)
    lasts[begun] = np.where(certain & (rest > 0.0), rest, high - now)
    return seconds, lasts, of_job


def _renew(
    view: View, begun: Rows, ids: list[JobId], low: Floats, before: Mapping[JobId, Estimate]
) -> dict[JobId, Estimate]:
    """Estimates of rows that have run; the predictor is asked about those at a new step."""
    of_job = {}
    new = []
    for row, name, step in zip(begun.tolist(), ids, low.tolist(), strict=True):
        estimate = before.get(name)
        if estimate is None or estimate.step != step:
            new.append((row, name, step))
        else:
            of_job[name] = estimate
    predictor = view.knowledge.predictor
    if not new or predictor is None:
        return of_job
    asked = np.zeros(len(view.table), dtype=bool)
    asked[[row for row, _, _ in new]] = True
    part = view.table.pick(asked)
    seconds = _invert(predictor.index(part, view.now))
    mean = predictor.remaining(part, view.now)
    # Of a job whose length is known the index is the inverse of what is left.
    certain = np.isfinite(mean) & np.isclose(seconds, np.maximum(mean, LEAST_S), 1e-9, 0.0)
    total = np.where(certain, part.ran(view.now) + mean, inf)
    for (_, name, step), each, whole in zip(new, seconds.tolist(), total.tolist(), strict=True):
        of_job[name] = Estimate(step, each, whole)
    return of_job


def _invert(index: Floats) -> Floats:
    return np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), inf)


def _read_past(view: View, before: Past | None) -> Past:
    """The service of past jobs, read again after some more ended."""
    seen = len(view.history)
    if before is not None and seen < before.seen + RENEW:
        return before
    return Past(seen, past_service(view.history))


def _guess(view: View, past: Floats) -> tuple[Floats, Floats]:
    """Seconds by the Gittins index of the service up to the next doubling, and until that.

    Where no past job ended in between, as if less than one of them had.
    """
    service, need = view.service(), np.maximum(view.table.need, 1e-9)
    low, high = step_below(service, STEP), step_above(service, STEP)
    index = gittins_index(past, low, high - low)
    gpu_s = np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), len(past) * high)
    return gpu_s / need, (high - service) / need
