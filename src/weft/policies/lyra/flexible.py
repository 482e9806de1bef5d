"""How many flexible workers jobs get: a multiple-choice knapsack on the time that they save."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from weft.core.model.job import Config
from weft.core.plan.view import View
from weft.core.state.table import Floats
from weft.solve.exact import by_dynamic_programming
from weft.solve.multiple_choice import Problem, choose

EXACT = 2e7  # cells of the dynamic programme up to which it is used
TIE = 1e-9


def time_saved(seconds: float, speeds: Floats) -> Floats:
    """Seconds saved by 1, 2, ... more workers: `speeds` are those at base and with so many more."""
    return np.asarray(seconds * (1.0 - speeds[0] / np.maximum(speeds[1:], 1e-12)))


def choose_extra(
    saved: Sequence[Floats], room: int, held: Sequence[int] | None = None
) -> list[int]:
    """Workers beyond base of each job, within `room` GPUs, that save most time together.

    Ties go to the number that is `held`.
    """
    most = min(max((len(gains) for gains in saved), default=0), room)
    if not most:
        return [0] * len(saved)
    value = np.full((len(saved), most), -np.inf)
    for i, gains in enumerate(saved):
        value[i, : len(gains)] = gains[:most]
        now = held[i] if held is not None else 0
        if 0 < now <= min(len(gains), most):
            value[i, now - 1] *= 1.0 + TIE
    count = np.arange(1.0, most + 1.0)
    kind, capacity = np.zeros(most, dtype=np.intp), np.array([float(room)])
    if value.size * room <= EXACT:
        pick = by_dynamic_programming(value, kind, count, capacity)
    else:
        pick = choose(Problem(value, kind, count, capacity)).pick
    return [int(extra) + 1 for extra in pick]


def believed_speeds(view: View, kind: str, most: int) -> Floats:
    """Rows x GPUs from 0 to `most` of a kind: speed; in proportion where nothing is believed."""
    linear = np.tile(np.arange(most + 1.0), (len(view.table), 1))
    if view.beliefs is None:
        return linear
    size = view.cluster.node_size(kind)
    configs = [Config(kind, ceil(gpus / size), gpus) for gpus in range(1, most + 1)]
    known = view.beliefs.goodputs(view.table, configs)
    usable = ~np.isnan(known[:, :1])
    return np.where(usable, np.concatenate([np.zeros((len(known), 1)), known], axis=1), linear)
