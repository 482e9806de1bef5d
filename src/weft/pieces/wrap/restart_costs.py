"""What stopping a running job costs, and how long it would go on: as far as anybody knows."""

from __future__ import annotations

import numpy as np

from weft.core.table import Floats
from weft.core.view import View

RESTART_S = 30.0  # what a restart costs where nobody believes anything of it


def restart_seconds(view: View) -> Floats:
    """Seconds that a restart costs each row."""
    if view.knowledge.beliefs is None:
        return np.full(len(view.table), RESTART_S)
    cost = view.knowledge.beliefs.restart_s(view.table)
    return np.where(np.isfinite(cost) & (cost > 0.0), cost, RESTART_S)


def seconds_left(view: View) -> Floats:
    """Seconds that each row may still run: predicted, else as long as it has run."""
    ran = view.ran()
    if view.knowledge.predictor is None:
        return ran
    left = view.remaining()
    return np.where(np.isfinite(left), left, ran)
