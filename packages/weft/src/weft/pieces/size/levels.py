"""Goodputs of sizes as levels that can be compared between jobs."""

from __future__ import annotations

import numpy as np

from weft.core.state.cells import Floats
from weft.native import compiled

INVALID = 1e-4  # the level of a size that a job cannot have


@compiled
def fill_levels(
    goodput: Floats, units: Floats, level: Floats, held: Floats, factor: Floats
) -> None:
    """Into `level`: goodputs over a job's worst, in GPUs of one replica, less for a restart."""
    allowed = goodput > 0.0
    worst = np.where(allowed, goodput, np.inf).argmin(axis=1)[:, None]
    least = np.take_along_axis(np.where(allowed, goodput, 1.0), worst, 1)
    unit = np.take_along_axis(np.maximum(units, 1.0), worst, 1)
    level[:] = np.where(allowed, unit * goodput / least, INVALID)
    moving = (held >= 0)[:, None] & (held[:, None] != np.arange(goodput.shape[1])[None, :])
    level[:] = np.where(moving & allowed, level * factor[:, None], level)
