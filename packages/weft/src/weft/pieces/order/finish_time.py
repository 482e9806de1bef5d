"""Jobs that fall behind an equal part of the cluster weigh more: a bound on finish-time fairness.

Finish-time fairness (Mahajan et al., "Themis", NSDI 2020) as far as it can be known before the end:
a job's age and what it still needs on its part, over what it would have needed there in total.
"""

from __future__ import annotations

import numpy as np

from weft.core.model.job import Config
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Rows
from weft.native import compiled
from weft.pieces.size.configs import gpus_of, kinds_of

HASTE = 4.0  # power of how far a job is beyond the bound
SOON_S = 600.0  # a job with no more than this left is hastened in full


def hasten_late(
    view: View, configs: tuple[Config, ...], goodput: Floats, left: Floats, bound: float
) -> Floats:
    """Factors for weights: 1 for jobs that are not about to end beyond the bound.

    A second changes the fairness of a job that has hours left by next to nothing, and may be all
    that a short one behind it waits for: the more is left, the less a job is hastened.
    """
    late = finish_time_fairness(view, configs, goodput, left)
    haste = np.maximum(late / bound, 1.0) ** HASTE - 1.0
    more: Floats = 1.0 + haste * np.minimum(SOON_S / left, 1.0)
    return more


def finish_time_fairness(
    view: View, configs: tuple[Config, ...], goodput: Floats, left: Floats
) -> Floats:
    """Return rho of each row, if it goes on as an equal part would let it; 0 for unknown work.

    `left` are seconds at its best size. To count with that size from now on would see a job that
    waits as late only when it is too late.
    """
    if view.pooled is None:
        return np.zeros(len(view.table))
    work = view.pooled.work(view.table)
    speed = _speed_on_a_part(view, configs, goodput)
    part = sum(view.cluster.gpus_by_kind.values()) / max(len(view.table), 1)
    alone = work / np.maximum(speed, 1e-12) * np.maximum(view.table.need / part, 1.0)
    rest = left * goodput.max(axis=1) / work
    late = (view.now - view.table.submitted) / np.maximum(alone, 1.0) + rest
    return np.where(np.isfinite(late) & (speed > 0.0), late, 0.0)


def _speed_on_a_part(view: View, configs: tuple[Config, ...], goodput: Floats) -> Floats:
    """Goodput of no more GPUs than each row asked for, on the mean of all GPUs there are."""
    asked, by_kind = np.maximum(view.table.gpus, 1.0), view.cluster.gpus_by_kind
    there, speed = np.array([*by_kind.values()], dtype=float), np.empty(len(view.table))
    kind = kinds_of(configs, view.cluster.kinds)
    fill_speeds(goodput, gpus_of(configs), asked, there, speed, kind)
    return speed / max(sum(by_kind.values()), 1)


@compiled
def fill_speeds(
    goodput: Floats, gpus: Floats, asked: Floats, there: Floats, speed: Floats, kind: Rows
) -> None:
    """Into `speed`: the sum over kinds of the GPUs that are `there` and the best goodput on one."""
    within = np.where(gpus[None, :] <= asked[:, None], goodput, 0.0)
    speed[:] = 0.0
    for number, count in enumerate(there.tolist()):
        speed += count * within[:, kind == number].max(axis=1, initial=0.0)
