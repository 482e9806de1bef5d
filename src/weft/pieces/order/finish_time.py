"""Jobs that are about to end much later than on an equal part of the cluster weigh more.

Finish-time fairness (Mahajan et al., "Themis", NSDI 2020) as far as it can be known before the end:
a job's age and what it still needs, over what it would have needed on its part.
"""

from __future__ import annotations

import numpy as np

from weft.core.model import Config
from weft.core.table import Floats
from weft.core.view import View

HASTE = 4.0  # power of how far a job is beyond the bound


def hasten_late(
    view: View, configs: tuple[Config, ...], goodput: Floats, left: Floats, bound: float
) -> Floats:
    """What to multiply weights by: 1 for those who will end in time if they run from now on."""
    late = finish_time_fairness(view, configs, goodput, left)
    return np.maximum(late / bound, 1.0) ** HASTE


def finish_time_fairness(
    view: View, configs: tuple[Config, ...], goodput: Floats, left: Floats
) -> Floats:
    """Of each row, if it had its best size from now on; 0 where its work is not known."""
    if view.pooled is None:
        return np.zeros(len(view.table))
    gpus = np.array([float(config.gpus) for config in configs])
    asked = np.maximum(view.table.gpus, 1.0)
    at_most = np.where(gpus[None, :] <= asked[:, None], goodput, 0.0).max(axis=1)
    part = sum(view.cluster.gpus_by_kind.values()) / max(len(view.table), 1)
    alone = view.pooled.work(view.table) / np.maximum(at_most, 1e-12)
    alone = alone * np.maximum(view.table.need / part, 1.0)
    late = (view.now - view.table.submitted + left) / np.maximum(alone, 1.0)
    return np.where(np.isfinite(late) & (at_most > 0.0), late, 0.0)
