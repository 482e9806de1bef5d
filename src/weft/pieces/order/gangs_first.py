"""A gang that small jobs keep out: whether it should run before them all.

Taken in order, a gang is passed over while any job before it runs, and what is left goes to jobs
behind it. Among sets that fit together the one that ends more jobs a second is better.
"""

from __future__ import annotations

import numpy as np

from weft.core.plan.view import View
from weft.core.state.table import Floats, Rows
from weft.pieces.fit import fit

TRIED = 8  # gangs that were passed over, the first ones
GAIN = 1.02  # times as many ends a second that are worth a change of the order


def raise_gang(view: View, order: Rows, rate: Floats, stays: int) -> Rows:
    """The order, with that gang behind the first `stays` with which most jobs end, if that gains.

    `rate` are ends a second of each row while it runs.
    """
    chosen = fit(view, order)
    if chosen.all() or not chosen.any():
        return order
    best, found = GAIN * float(rate[order[chosen]].sum()), order
    last = int(np.flatnonzero(chosen)[-1])
    passed = stays + np.flatnonzero(~chosen[stays:last])
    for at in passed[:TRIED].tolist():
        rest = np.delete(order, at)
        trial = np.concatenate([rest[:stays], order[at : at + 1], rest[stays:]])
        ends = float(rate[trial[fit(view, trial)]].sum())
        if ends > best:
            best, found = ends, trial
    return found
