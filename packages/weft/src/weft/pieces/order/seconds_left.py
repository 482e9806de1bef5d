"""Seconds that jobs still need: from their own reports, a predictor or the past.

Reported progress of declared work comes first; then the predictor; a job that neither knows gets
the inverse of its Gittins index over the service of past jobs: the service it must be given for
one more end. A job that has run for longer than was predicted is thought to need about as much
again, in doublings: those are the longest jobs there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.pieces.order.attained import coarse_gittins_index, past_service, step_above

LEAST_S = 1.0
MINUTE = 60.0


class SecondsLeft(NamedTuple):
    """Time left of each row, and whether that is `guessed` from the past: its work is unknown."""

    seconds: Floats
    guessed: Bools
    lasts: Floats


def seconds_left(view: View, best: Floats, step: Floats | float = MINUTE) -> SecondsLeft:
    """Seconds that each row needs alone on its best size, where it makes `best` samples per second.

    What a predictor says counts for the GPUs that a job asked for; so does the service of others,
    which is looked at in doublings of `step` GPU-seconds.
    """
    left = np.full(len(view.table), np.nan)
    lasts = np.full(len(view.table), np.inf)
    if view.pooled is not None:
        left = view.pooled.work_left(view.table, view.now) / np.maximum(best, 1e-12)
    unknown: Bools = ~np.isfinite(left)
    if unknown.any() and view.knowledge.predictor is not None:
        predicted, holds = _predict(view)
        predictable = unknown & np.isfinite(predicted)
        left = np.where(predictable, predicted, left)
        lasts = np.where(predictable, holds, lasts)
        unknown = ~np.isfinite(left)
    if unknown.any():
        service, need = view.service(), np.maximum(view.table.need, 1e-9)
        left[unknown] = (_guess(view, service, step) / need)[unknown]
        lasts[unknown] = ((step_above(service, step) - service) / need)[unknown]
    return SecondsLeft(np.maximum(left, LEAST_S), unknown, lasts)


def _predict(view: View) -> tuple[Floats, Floats]:
    """Seconds left, and how long that holds: to the next doubling if a job outlived its estimate.

    A predictor that was wrong of a job knows nothing more of it than that it ran for so long.
    """
    predicted, ran = view.remaining(), view.ran()
    outlived = predicted <= 0.0
    high = step_above(ran, MINUTE)
    return np.where(outlived, high, predicted), np.where(outlived, high - ran, predicted)


def _guess(view: View, service: Floats, step: Floats | float) -> Floats:
    """GPU-seconds by attained service; a job with more than any before needs as much again."""
    index = coarse_gittins_index(past_service(view.history), service, step)
    return np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), service)
