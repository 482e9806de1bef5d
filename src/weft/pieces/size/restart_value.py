"""What sizes are worth to jobs that lose time whenever they change.

A job with so many seconds left that runs at part `speed` of its best makes `weight` x `speed` a
second. A change to a faster size is worth that only for the part of its horizon that the restart
leaves; losing what it holds costs a restart within a shorter horizon.
"""

from __future__ import annotations

import numpy as np

from weft.core.state.table import Bools, Floats
from weft.frozen import frozen


@frozen
class Changes:
    """Seconds without progress: of a start, and of a change of what is held; rows x sizes.

    A change begins to pay after `ready_s`, in which a job goes on as it is, and what it holds costs
    `rent` a second to those who wait for it. `rise_s` and `loss_s` are the longest horizons that a
    rise and a loss are counted over.
    """

    start_s: Floats
    change_s: Floats
    ready_s: Floats
    rent: Floats
    rise_s: Floats
    loss_s: float
    least: float = 0.02  # of what a faster size is worth that is left at any rate


def restart_values(
    speed: Floats, held: Floats, weight: Floats, left: Floats, changes: Changes
) -> Floats:
    """Rows x sizes: what each size is worth to each job; nothing at all is worth 0.

    `speed` is a part of the best, `held` the size that each job holds, below 0 where none; `left`
    are seconds at the best size.
    """
    rows = np.arange(len(speed))
    has: Bools = (held >= 0.0)[:, None]
    now = np.where(has[:, 0], speed[rows, np.maximum(held, 0.0).astype(np.intp)], 0.0)[:, None]
    same = held[:, None] == np.arange(speed.shape[1])[None, :]
    w, seconds = weight[:, None], left[:, None]
    stop = changes.start_s.max(axis=1)[:, None]
    lost = np.minimum(changes.loss_s, seconds / np.maximum(now, 1e-9) + stop)
    keep = w * now * stop / np.maximum(lost, 1.0)  # what being stopped would cost
    cost = np.where(has, changes.change_s, changes.start_s)
    ready = np.where(has, changes.ready_s, 0.0)
    rise = np.maximum(
        np.minimum(changes.rise_s, seconds / np.maximum(speed, 1e-9) + cost + ready), 1.0
    )
    faster = w * speed * np.maximum(1.0 - (cost + ready) / rise, changes.least)
    faster += (w * now - changes.rent) * np.minimum(ready / rise, 1.0)
    shrunk = np.minimum(changes.loss_s, seconds / np.maximum(now, 1e-9) + cost)
    slower = w * speed - (w * now * cost + changes.rent * ready) / np.maximum(shrunk, 1.0)
    gained = np.where(same, w * speed, np.where(has & (speed <= now), slower, faster))
    return np.where(has, gained + keep, gained)
