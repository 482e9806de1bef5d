"""A gang that small jobs keep out: whether it should run before them all.

Taken in order, a gang is passed over while any job before it runs, and what is left goes to jobs
behind it. Among sets that fit together the one that ends more jobs a second is better.
"""

from __future__ import annotations

import numpy as np

from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats, Rows
from weft.pieces.fit import fit

TRIED = 8  # gangs that were passed over, the first ones
GAIN = 1.02  # times as many ends a second that are worth a change of the order


def raise_gang(view: View, order: Rows, rate: Floats, stays: int) -> tuple[Rows, Bools]:
    """The order, with that gang behind the first `stays` with which most jobs end, if that gains.

    `rate` are ends a second of each row while it runs. With the order comes who of it fits.
    """
    chosen = fit(view, order)
    if chosen.all() or not chosen.any():
        return order, chosen
    ends = rate[order]
    best, raised = GAIN * float(ends[chosen].sum()), (order, chosen)
    last = int(np.flatnonzero(chosen)[-1])
    for at in (stays + np.flatnonzero(~chosen[stays:last]))[:TRIED].tolist():
        trial = _raise(order, at, stays)
        fits = fit(view, trial)
        more = float(rate[trial[fits]].sum())
        if more > best:
            best, raised = more, (trial, fits)
    return raised


def _raise(order: Rows, at: int, to: int) -> Rows:
    """The order with one moved forward."""
    moved = order.copy()
    moved[to], moved[to + 1 : at + 1] = order[at], order[to:at]
    return moved
