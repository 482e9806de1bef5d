"""Seconds that jobs still need, from whoever knows: their own reports, a predictor, the past.

Reported progress of declared work comes first; then the predictor; a job that neither knows gets
the inverse of its Gittins index over the service of past jobs: the service it must be given for
one more end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.table import Bools, Floats
from weft.core.view import View
from weft.pieces.order.gittins import coarse_gittins_index, past_service

LEAST_S = 1.0


class SecondsLeft(NamedTuple):
    """Of each row, and whether that is `guessed` from the past: nobody knows its work."""

    seconds: Floats
    guessed: Bools


def seconds_left(view: View, best: Floats) -> SecondsLeft:
    """What each row needs alone on its best size, where it makes `best` samples a second.

    What a predictor says counts for the GPUs that a job asked for; so does the service of others,
    which is looked at in doublings.
    """
    left = np.full(len(view.table), np.nan)
    if view.pooled is not None:
        left = view.pooled.work_left(view.table, view.now) / np.maximum(best, 1e-12)
    unknown: Bools = ~np.isfinite(left)
    if unknown.any() and view.knowledge.predictor is not None:
        told = view.remaining()
        left = np.where(unknown & np.isfinite(told), told, left)
        unknown = ~np.isfinite(left)
    if unknown.any():
        left[unknown] = _guess(view)[unknown]
    return SecondsLeft(np.maximum(left, LEAST_S), unknown)


def _guess(view: View) -> Floats:
    """By attained service; who has more than any job before needs as much again."""
    service = view.service()
    index = coarse_gittins_index(past_service(view.history), service)
    gpu_s = np.where(index > 0.0, 1.0 / np.maximum(index, 1e-12), service)
    seconds: Floats = gpu_s / np.maximum(view.table.need, 1e-9)
    return seconds
