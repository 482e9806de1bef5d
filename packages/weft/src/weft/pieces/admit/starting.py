"""Ways to start jobs: in turn, all that fit, or the first at the cost of the last.

Where sizes are chosen, those take part whose sizes fit together: the least they can do with, or,
with `by=asked`, what they asked for, so that the first in the order get more.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.taxonomy import Preemption, declare
from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.fit import EPS, fit_first
from weft.pieces.pack import backfill, backfill_by, in_turn, pack, pack_by
from weft.pieces.parts import Ranking
from weft.pieces.place.gangs import Placer

Counted = Literal["least", "asked"]
NEVER = declare(Preemption.NEVER)
OVERTAKEN = "overtaking"
BEHIND = "a job that does not fit keeps those behind it waiting"


@frozen
class Starting:
    """Base of the ways to start; `by` is the size that counts where sizes are chosen."""

    by: Counted = "least"

    stops = False
    overtakes = True


@frozen
class InTurn(Starting):
    """Strictly in order: a job that does not fit holds up all jobs behind it; no job is stopped."""

    about = About("in-turn", "baseline", taxonomy=NEVER, idles=BEHIND)
    overtakes = False

    def start(self, view: View, ranking: Ranking, place: Placer) -> Plan:
        """Start jobs in their order until one does not fit."""
        return in_turn(view, ranking.rows, place)

    def among(self, view: View, rows: Rows) -> Bools:
        """Running jobs, then waiting ones until one does not fit."""
        rows = _running_first(view, rows)
        total = np.cumsum(_beside_running(view, self.by)[rows])
        count = int(np.searchsorted(total, view.cluster.gpus + EPS, side="right"))
        return _mask(view, rows[:count])


@frozen
class Backfill(Starting):
    """Start jobs that fit in the free devices, in order; stop none."""

    about = About("backfill", "baseline", taxonomy=NEVER, starves=OVERTAKEN)

    def start(self, view: View, ranking: Ranking, place: Placer) -> Plan:
        """Pass over those that do not fit."""
        key = ranking.lone_key
        if key is None:
            return backfill(view, ranking.rows, place)
        return backfill_by(view, key, place)

    def among(self, view: View, rows: Rows) -> Bools:
        """Running jobs, then waiting ones that fit."""
        return _fitting(view, _running_first(view, rows), _beside_running(view, self.by))


@frozen
class Preempt(Starting):
    """The first in the order that fit together; running jobs behind them are stopped."""

    about = About("preempt", "baseline", taxonomy=declare(Preemption.STOPS))
    stops = True

    def start(self, view: View, ranking: Ranking, place: Placer) -> Plan:
        """A job that is still among the first keeps its place."""
        key = ranking.lone_key
        if key is not None:
            return pack_by(view, key, place)
        return pack(view, ranking.rows, place, key=ranking.key)

    def among(self, view: View, rows: Rows) -> Bools:
        """The first that fit together; jobs that may not be stopped before all others."""
        bound = view.running() & ~view.preemptible()
        return _fitting(
            view, rows[np.argsort(~bound[rows], kind="stable")], count_gpus(view, self.by)
        )


def count_gpus(view: View, by: Counted) -> Floats:
    """The GPUs that each row is counted with; a part of one counts as one."""
    column = TableColumns.MIN if by == "least" else TableColumns.GPUS
    return np.asarray(np.maximum(view.table.column(column), 1.0))


def _running_first(view: View, rows: Rows) -> Rows:
    return rows[np.argsort(view.table.held[rows] == 0.0, kind="stable")]


def _beside_running(view: View, by: Counted) -> Floats:
    """Sizes that count, with the least for those that run: they are never left out."""
    return np.where(view.running(), count_gpus(view, "least"), count_gpus(view, by))


def _fitting(view: View, rows: Rows, need: Floats) -> Bools:
    return _mask(view, rows[fit_first(need[rows], float(view.cluster.gpus))])


def _mask(view: View, rows: Rows) -> Bools:
    mask = np.zeros(len(view.table), dtype=bool)
    mask[rows] = True
    return mask
