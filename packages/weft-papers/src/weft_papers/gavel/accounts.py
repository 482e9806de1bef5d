"""Time that past rounds gave to each job on each kind: Gavel's memory between decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats, TableColumns
from weft.frozen import frozen
from weft_papers.gavel.problem import AllocationProblem, Solution

Unit = tuple[str, ...]
NOWHERE = -1


@frozen
class UnitAccounts:
    """Accounts of the units that can run: jobs, and pairs of jobs that share devices.

    By unit and kind: `share` is the fraction of time it should have, `received` the seconds it
    had since the last reset (with half a round of credit), `deficit` what it was owed at resets
    before. `total` is received time of all jobs by kind. By job: `ran` seconds at the beginning
    of this round, `done` steps, and `fair` as (seconds alone so far, steps, steps per second
    alone) at the last solution. `solved` and `gpus` are what that solution knew.
    """

    kinds: tuple[str, ...]
    units: tuple[Unit, ...]
    share: Floats
    received: Floats
    deficit: Floats
    total: Floats
    on: tuple[int, ...] = ()
    ran: Mapping[str, float] = field(default_factory=dict)
    done: Mapping[str, float] = field(default_factory=dict)
    fair: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    solved: tuple[str, ...] = ()
    gpus: tuple[float, ...] = ()
    round_at: float = 0.0
    reset_at: float = 0.0


def open_accounts(jobs: Sequence[str], kinds: tuple[str, ...], credit: float) -> UnitAccounts:
    """An account for every job, with nothing but the credit."""
    nothing = np.zeros((len(jobs), len(kinds)))
    return UnitAccounts(
        kinds,
        tuple((job,) for job in jobs),
        nothing,
        nothing + credit,
        nothing,
        np.full(len(kinds), credit * len(jobs)),
        (NOWHERE,) * len(jobs),
    )


def carry_forward(
    old: UnitAccounts | None,
    view: View,
    problem: AllocationProblem,
    kinds: tuple[str, ...],
    credit: float,
    *,
    restarts: bool = True,
) -> UnitAccounts:
    """The book with the round that just ended written in, without jobs that left.

    Time spent on restarting counts as received unless `restarts` is false.
    """
    jobs = [str(job.id) for job in view.table.jobs]
    new = open_accounts(jobs, kinds, credit)
    ran = dict(zip(jobs, view.ran().tolist(), strict=True))
    if old is None:
        return replace(new, ran=ran)
    keep = set(jobs)
    done = {job: old.done[job] for job in jobs if job in old.done}
    fair = {job: old.fair[job] for job in jobs if job in old.fair}
    kept = replace(old, ran=ran, fair=fair, done=done)
    if old.kinds != kinds:  # a kind came or went: open the accounts again
        same = replace(new, ran=ran, done=done, fair=fair)
        return replace(same, reset_at=old.reset_at, round_at=old.round_at)
    spent = {job: ran[job] - old.ran.get(job, 0.0) for job in jobs}
    used = dict(spent)
    if not restarts:
        lost = _restarting(view, old.round_at, first=True)
        used = {job: max(spent[job] - lost[row], 0.0) for row, job in enumerate(jobs)}
    received, total = _receive(old, used)
    done.update(_steps(old, view, problem, spent))
    index = {unit: i for i, unit in enumerate(old.units)}
    units = new.units + tuple(u for u in old.units if len(u) > 1 and keep.issuperset(u))
    rows = np.array([index.get(unit, NOWHERE) for unit in units])
    seen = rows >= 0

    def carried(column: Floats, otherwise: float) -> Floats:
        return np.where(seen[:, None], column[rows], otherwise)

    return replace(
        kept,
        units=units,
        share=carried(old.share, 0.0),
        received=carried(received, credit),
        deficit=carried(old.deficit, 0.0),
        total=total,
        on=(NOWHERE,) * len(units),
        done=done,
    )


def reset(
    book: UnitAccounts,
    problem: AllocationProblem,
    solution: Solution,
    now: float,
    credit: float,
    *,
    forget: bool = True,
) -> UnitAccounts:
    """The book with new shares; what was owed under the old ones becomes deficit.

    Received time starts again from the credit, unless it is not to be forgotten.
    """
    owed = book.deficit + book.share * (now - book.reset_at) - (book.received - credit)
    jobs = [unit[0] for unit in book.units if len(unit) == 1]
    pairs = problem.pairs
    wanted = np.flatnonzero(solution.paired.max(axis=1, initial=0.0) > 0.0)
    joint = tuple((jobs[pairs.first[i]], jobs[pairs.second[i]]) for i in wanted)
    units = tuple((job,) for job in jobs) + joint
    index = {unit: i for i, unit in enumerate(book.units)}
    rows = np.array([index.get(unit, NOWHERE) for unit in units])
    share = np.concatenate([solution.alone, solution.paired[wanted]]) if joint else solution.alone
    received, total = np.full(share.shape, credit), np.full(len(book.kinds), credit * len(units))
    if not forget:
        received, total = np.where((rows >= 0)[:, None], book.received[rows], credit), book.total
    return replace(
        book,
        units=units,
        share=share,
        received=received,
        deficit=np.where((rows >= 0)[:, None], owed[rows], 0.0),
        total=total,
        on=(NOWHERE,) * len(units),
        solved=tuple(jobs),
        gpus=tuple(problem.gpus.tolist()),
        reset_at=now,
    )


def _receive(old: UnitAccounts, spent: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Time received by unit and by kind, a gang or a pair counted once."""
    received, total = old.received.copy(), old.total.copy()
    for i, (unit, kind) in enumerate(zip(old.units, old.on, strict=True)):
        if kind >= 0:
            seconds = max((spent[job] for job in unit if job in spent), default=0.0)
            received[i, kind] += seconds
            total[kind] += seconds
    return received, total


def _steps(
    old: UnitAccounts, view: View, problem: AllocationProblem, spent: Mapping[str, float]
) -> dict[str, float]:
    """Steps made by each job since the round began, restarts not counted."""
    row = {str(job.id): i for i, job in enumerate(view.table.jobs)}
    lost = _restarting(view, old.round_at, first=False)
    pairs = problem.pairs
    both = {ab: i for i, ab in enumerate(zip(pairs.first, pairs.second, strict=True))}
    done = {}
    for unit, kind in zip(old.units, old.on, strict=True):
        if kind < 0:
            continue
        rows = [row[job] for job in unit if job in row]
        for side, job in enumerate(unit):
            if job not in row:
                continue
            rate = problem.rates[row[job], kind]
            if len(rows) == 2 and (pair := both.get((rows[0], rows[1]))) is not None:
                rate = pairs.rates[pair, kind, side]
            seconds = max(spent[job] - lost[row[job]], 0.0)
            done[job] = old.done.get(job, 0.0) + float(rate) * seconds
    return done


def _restarting(view: View, since: float, *, first: bool) -> Floats:
    """Seconds of the last round that each job is believed to have spent on restarting.

    With `first`, on starting for the first time too.
    """
    table = view.table
    if view.beliefs is None:
        return np.zeros(len(table))
    again = (table.column(TableColumns.ATTEMPT) > (0 if first else 1)) & (table.held > 0.0)
    again &= table.column(TableColumns.RAN_SINCE) >= since
    return np.where(again, view.beliefs.restart_s(table), 0.0)
