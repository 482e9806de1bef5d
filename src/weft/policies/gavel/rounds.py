"""The mechanism: who runs on which kind this round, so that time received approaches the shares.

Paper section 5. Every unit has a priority on every kind, its share over the fraction of the
kind's time that it has had; rounds are filled greedily by priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from weft.core.model.job import Allocation, Job, JobId, Sharing, Slice
from weft.core.plan.view import View
from weft.core.state.table import Bools, Floats, Rows
from weft.frozen import frozen
from weft.pieces.place.gangs import fewest_nodes
from weft.policies.gavel.accounts import Accounts

EPS = 1e-9
HALF = Sharing(share=0.5)


@frozen
class Turn:
    """A unit on a kind: rows of its jobs, and where."""

    unit: int
    rows: tuple[int, ...]
    kind: int


def rank_units(book: Accounts, runs: Bools) -> Floats:
    """Units x kinds: X / f where a unit has a share and can run, else 0."""
    fraction = book.received / np.maximum(book.total, EPS)
    solved = set(book.solved)
    known = np.array([solved.issuperset(unit) for unit in book.units])
    due = book.share / np.maximum(fraction, 1e-9)
    return np.where(runs & known[:, None] & (book.share > 0.0), due, 0.0)


def due_first(book: Accounts, priority: Floats, order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Every kind to those with a share of it; then what is left to anybody."""
    queues = [(kind, best_first(book, priority, kind)) for kind in order]
    for kind, queue in queues:
        yield from ((int(u), kind) for u in queue if priority[u, kind] > 0.0)
    for kind, queue in queues:
        yield from ((int(u), kind) for u in queue if priority[u, kind] <= 0.0)


def all_at_once(priority: Floats, order: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Units and kinds in one queue by priority, as in Sia's simulator."""
    kinds = np.tile(np.asarray(order, dtype=np.intp), len(priority))
    units = np.repeat(np.arange(len(priority)), len(order))
    for i in np.argsort(-priority[units, kinds], kind="stable"):
        yield int(units[i]), int(kinds[i])


def choose_turns(
    book: Accounts, gangs: Floats, runs: Bools, gpus: Floats, queue: Iterable[tuple[int, int]]
) -> list[Turn]:
    """Take from the queue whatever finds room; nobody twice. `gangs` is by unit."""
    row = {unit[0]: i for i, unit in enumerate(book.units) if len(unit) == 1}
    room = gpus.tolist()
    taken: set[str] = set()
    turns = []
    for unit, kind in queue:
        gang, jobs = gangs[unit], book.units[unit]
        if gang > room[kind] + EPS or not runs[unit, kind] or not taken.isdisjoint(jobs):
            continue
        room[kind] -= gang
        taken.update(jobs)
        turns.append(Turn(unit, tuple(row[job] for job in jobs), kind))
    return turns


def place_turns(
    view: View, turns: Sequence[Turn], gangs: Floats, kinds: Sequence[str]
) -> dict[Turn, dict[JobId, Allocation]]:
    """Devices for every turn: the same as before where possible, else on the fewest nodes.

    The ledger must have taken back what everybody held.
    """
    done: dict[Turn, dict[JobId, Allocation]] = {}
    for turn in turns:
        if held := _keep(view, turn, kinds[turn.kind]):
            done[turn] = held
    for turn in sorted(turns, key=lambda turn: -gangs[turn.unit]):
        if turn not in done and (allocations := _find(view, turn, kinds[turn.kind])):
            done[turn] = allocations
    return done


def fill_turns(
    view: View,
    book: Accounts,
    runs: Bools,
    queue: Iterable[tuple[int, int]],
    given: dict[Turn, dict[JobId, Allocation]],
) -> None:
    """Who finds devices among those that gangs without a place leave; `given` grows."""
    row = {unit[0]: i for i, unit in enumerate(book.units) if len(unit) == 1}
    taken: set[str] = {job for part in given.values() for job in part}
    for unit, kind in queue:
        jobs = book.units[unit]
        if not view.free.idle() or not runs[unit, kind] or not taken.isdisjoint(jobs):
            continue
        turn = Turn(unit, tuple(row[job] for job in jobs), kind)
        if allocations := _find(view, turn, book.kinds[kind]):
            given[turn] = allocations
            taken.update(jobs)


def best_first(book: Accounts, priority: Floats, kind: int) -> Rows:
    """By priority, deficit, share; ties to the earlier job."""
    keys = (-book.share[:, kind], -book.deficit[:, kind], -priority[:, kind])
    return np.lexsort(keys)


def _keep(view: View, turn: Turn, kind: str) -> dict[JobId, Allocation]:
    """What the jobs of a turn hold, if it is on that kind, shared alike and not yet gone."""
    held = [view.allocation(row) for row in turn.rows]
    jobs = [view.job(row) for row in turn.rows]
    share = 0.5 if len(jobs) == 2 else jobs[0].demand.share
    if held[0] is None or any(on is None or on.slices != held[0].slices for on in held):
        return {}
    if view.cluster.kind_of(held[0]) != kind or held[0].sharing.share != share:
        return {}
    return _take(view, jobs, held[0])


def _find(view: View, turn: Turn, kind: str) -> dict[JobId, Allocation]:
    jobs = [view.job(row) for row in turn.rows]
    demand = replace(jobs[0].demand, kinds=(kind,))
    on = fewest_nodes(replace(jobs[0], demand=demand), view.free)
    if on is not None and len(jobs) == 2:
        on = Allocation(tuple(_halve(view, part) for part in on.slices), HALF)
    return {} if on is None else _take(view, jobs, on)


def _take(view: View, jobs: Sequence[Job], on: Allocation) -> dict[JobId, Allocation]:
    """Promise the allocation to all jobs of a turn, or to none."""
    mark = view.free.mark()
    for _ in jobs:
        if not view.free.fits(on):
            view.free.rollback(mark)
            return {}
        view.free.take(on)
    return {job.id: on for job in jobs}


def _halve(view: View, part: Slice) -> Slice:
    devices = sum(1 << gpu for gpu in part.gpus)
    return view.free.slice_of(view.cluster.index[part.node], devices, 0.5)
