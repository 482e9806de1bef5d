"""From an order to a plan: the first in the order hold GPUs, the others give way.

Only what changes is touched: a running job that is still among the first keeps its place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.pieces.fit import EPS, choose_rows, count_held, fit, fit_first, list_waiting, times_asked
from weft.pieces.order.equals import drop_swaps
from weft.pieces.place.gangs import Placer, fewest_nodes

SPARE = 64  # rows that are ranked beyond as many as there are GPUs
STRETCH = 512  # rows that are read together where a walk may end at any of them
SCANNED = 2_048  # rows that are scanned for those that wait sooner than looked up one by one
Alike = tuple[Demand, str, float | None]


def pack(
    view: View,
    order: Rows,
    place: Placer = fewest_nodes,
    late: Bools | None = None,
    chosen: Bools | None = None,
    key: Floats | None = None,
) -> Plan:
    """Run the first of `order` that fit together; stop running jobs that stand in their way.

    A job that holds more than it asks for, since another policy let it grow, makes room and goes on
    with what it asks for. Parts of devices may be free all over while no whole ones are: for rows
    that are `late` jobs behind them are stopped even though all would fit by number. `chosen` are
    those that fit, where that was found out before. Of equals of one `key` those that run go on.
    """
    held = view.table.held[order]
    if held.all():
        return Plan()
    draft = PlanDraft(view, place)
    if chosen is None:
        chosen = fit(view, order)
    leave, new = order[(held > 0.0) & ~chosen].tolist(), order[(held == 0.0) & chosen].tolist()
    leave, new = drop_swaps(view, key, leave, new)
    for row in leave:
        draft.release(row)
    starved = [row for row in new if not draft.start(row)]
    if starved and (large := order[times_asked(view, order) > 1.0][::-1]).size:
        for row in starved:
            draft.clear_for(row, large)
    if late is not None:
        for row in starved:
            if late[row]:
                behind = order[int(np.flatnonzero(order == row)[0]) :]
                draft.clear_for(row, behind[view.table.held[behind] > 0.0][::-1])
    if starved or len(view.cluster.kinds) > 1:
        draft.refill(order[~chosen | draft.is_stopped(order)])
    return Plan(draft.changes)


def pack_by(view: View, key: Floats, place: Placer = fewest_nodes) -> Plan:
    """Pack in order of `key`; where many wait, only those that may get a turn are ranked."""
    table, one_kind = view.table, len(view.cluster.kinds) <= 1
    if one_kind and (plan := start_all(view, place, key)) is not None:
        return plan
    held, need = table.held, table.need
    taken = count_held(held, table.gpus, need)
    if taken is None or not one_kind:
        return pack(view, view.ranked(key), place, key=key)
    room = view.free.room() + taken
    most = int(room) + SPARE
    if table.waiting < 2 * most:
        stops, starts, chosen = choose_rows(key, need, held, room)
    else:
        stops, starts, chosen = _choose_first(view, key, room, most)
    stopped, started = drop_swaps(view, key, stops, starts)
    draft = PlanDraft(view, place)
    for row in stopped:
        draft.release(row)
    starved = [row for row in started if not draft.start(row)]
    if starved:
        others: Bools = need <= view.free.room() + EPS
        others[chosen] = False
        draft.refill(view.ranked(key, among=others))
    return Plan(draft.changes)


def _choose_first(
    view: View, key: Floats, room: float, most: int
) -> tuple[list[int], list[int], list[int]]:
    """As `choose_rows`, of the first `most` in order of `key`, then of those that still fit.

    Those that are left out wait and go on waiting.
    """
    held, need, head = view.table.held, view.table.need, _find_first(key, most)
    running: Bools = held > 0.0
    first = view.ranked(key, among=head)
    fitting = fit_first(need[first], room)
    room -= float(need[first[fitting]].sum())
    last = view.ranked(key, among=~head & (running | (need <= room + EPS)))
    order = np.concatenate([first, last])
    chosen = np.concatenate([fitting, fit_first(need[last], room)])
    runs = running[order]
    stopped, started = order[runs & ~chosen], order[~runs & chosen]
    return stopped.tolist(), started.tolist(), order[chosen].tolist()


def _find_first(key: Floats, most: int) -> Bools:
    """The `most` least; of equal ones the first."""
    limit = np.partition(key, most)[most]
    first: Bools = key < limit
    first[np.flatnonzero(key == limit)[: most - int(first.sum())]] = True
    return first


def backfill(view: View, order: Rows, place: Placer = fewest_nodes) -> Plan:
    """Start every waiting job of `order` that fits in what is free; stop no job."""
    draft = PlanDraft(view, place)
    draft.refill(order[view.table.held[order] == 0.0])
    return Plan(draft.changes)


def backfill_by(view: View, key: Floats, place: Placer = fewest_nodes) -> Plan:
    """Backfill in order of `key`: those that are too large for what is free are not ranked."""
    draft, most = PlanDraft(view, place), int(view.free.room()) + SPARE
    rows = np.flatnonzero(view.waiting() & (view.table.need <= view.free.room() + EPS))
    if len(rows) > 2 * most:
        first = _find_first(key[rows], most)
        draft.refill(_rank(rows[first], key))
        rows = rows[~first & (view.table.need[rows] <= view.free.room() + EPS)]
    draft.refill(_rank(rows, key))
    return Plan(draft.changes)


def _rank(rows: Rows, key: Floats) -> Rows:
    return rows[np.argsort(key[rows], kind="stable")]


def in_turn(view: View, order: Rows, place: Placer = fewest_nodes) -> Plan:
    """Start waiting jobs of `order` until one does not fit; no job overtakes it."""
    draft, held = PlanDraft(view, place), view.table.held
    for at in range(0, len(order), STRETCH):
        rows = order[at : at + STRETCH]
        for row in rows[held[rows] == 0.0].tolist():
            if not draft.start(row):
                return Plan(draft.changes)
    return Plan(draft.changes)


def start_newcomer(view: View, place: Placer = fewest_nodes) -> Plan | None:
    """The plan where at most one job waits and finds room: what it is does not depend on an order.

    None where several wait, or one has to, or kinds of GPU are to choose from.
    """
    table = view.table
    if not table.waiting:
        return Plan()
    if table.waiting > 1 or len(view.cluster.kinds) > 1:
        return None
    row = table.first_waiting()
    if view.table.need[row] > view.free.room():
        return None
    return start_if_fits(view.job(row), view.free, place)


def start_if_fits(job: Job, free: Capacity, place: Placer = fewest_nodes) -> Plan | None:
    """Start a job where there is a place for it; None if there is none."""
    on = place(job, free)
    return None if on is None else Plan({job.id: on})


def start_all(view: View, place: Placer = fewest_nodes, key: Floats | None = None) -> Plan | None:
    """Start every waiting job beside those that run; None if one would have to wait.

    In order of `key`, looked at only for waiting jobs; else in order of submission.
    """
    if not view.table.waiting:
        return Plan()
    waiting = _waiting_that_fit(view, key)
    if waiting is None:
        return None
    draft, mark = PlanDraft(view, place), view.free.mark()
    if all(draft.start(row) for row in waiting):
        return Plan(draft.changes)
    view.free.rollback(mark)
    return None


def _waiting_that_fit(view: View, key: Floats | None) -> list[int] | None:
    """All rows that wait, in order, if there is room for them by number."""
    table, room = view.table, view.free.room()
    if len(table) <= SCANNED:
        return list_waiting(table.held, table.need, key, room)
    rows = table.waiting_rows()
    if np.add.reduce(table.need[rows]) > room:
        return None
    waiting: list[int] = (rows if key is None else _rank(rows, key)).tolist()
    return waiting


class PlanDraft:
    """A plan in the making, with the ledger as it would be."""

    def __init__(self, view: View, place: Placer) -> None:
        self.changes: dict[JobId, Allocation | None] = {}
        self._view = view
        self._place = place
        self._released: dict[int, Allocation] = {}
        self._failed: set[Alike] = set()

    def release(self, row: int) -> None:
        """Take away what a row holds."""
        on = self._view.allocation(row)
        assert on is not None
        self._view.free.give(on)
        self._released[row] = on
        self.changes[self._view.job(row).id] = None

    def start(self, row: int) -> bool:
        job = self._view.job(row)
        on = self._place(job, self._view.free)
        if on is None:
            return False
        self._view.free.take(on)
        self.changes[job.id] = on
        return True

    def clear_for(self, row: int, others: Rows) -> None:
        """Place a row, if it finds one once the first of these others have left."""
        mark, before = self._view.free.mark(), (dict(self.changes), dict(self._released))
        for other in others.tolist():
            if other not in self._released:
                self.release(other)
                if self.start(row):
                    return
        self._view.free.rollback(mark)
        self.changes, self._released = before

    def is_stopped(self, rows: Rows) -> Bools:
        """Return the rows among these that hold nothing any more."""
        return np.isin(rows, list(self._released))

    def refill(self, order: Rows) -> None:
        """Offer what is free to rows that hold nothing, those just released first to stay."""
        free, need = self._view.free, self._view.table.need
        for row in _walk(order[need[order] <= self._room() + EPS]):
            if not self._room():
                return
            job = self._view.job(row)
            was = self._released.get(row)
            if was is not None and free.fits(was):
                free.take(was)
                del self.changes[job.id]
            elif (alike := _alike(job)) not in self._failed and not self.start(row):
                self._failed.add(alike)

    def _room(self) -> float:
        return self._view.free.room()


def _walk(rows: Rows) -> Iterator[int]:
    for at in range(0, len(rows), STRETCH):
        yield from rows[at : at + STRETCH].tolist()


def _alike(job: Job) -> Alike:
    """Return what a placer reads of a job: if it finds no place, none alike does."""
    return job.demand, job.model, job.hints.get("skew")


def running_after(view: View, plan: Plan) -> Bools:
    """Rows that hold devices once the plan is carried out."""
    mask = view.running()
    for job, on in plan.changes.items():
        mask[view.table.row(job)] = on is not None
    return np.asarray(mask)
