"""Astraea as the authors' simulator has it (Ye et al., 2022), job by job.

It keeps a list of running jobs, which is walked while jobs are taken off it. Who follows a job
that ended, or whose lease did, is skipped until the next time: its lease goes on, and if it
has ended itself it keeps its GPUs, and counts for its tenant, until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from weft.core.model.job import Allocation, JobId
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft_papers.astraea.accounts import (
    AccountRows,
    AstraeaMemory,
    Hours,
    Lengths,
    advance,
    count_hours,
)
from weft_papers.astraea.policy import Astraea, classify
from weft_papers.astraea.tenants import SLACK
from weft_papers.astraea.turn import AstraeaDecision, Leases, tenant_of


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of the list, whom it counts for, and what it holds."""

    job: JobId
    tenant: str
    on: Allocation


@dataclass(frozen=True, slots=True)
class Walked:
    """The list after a walk: who stays, and who of these has ended already."""

    line: tuple[ListedJob, ...] = ()
    ghosts: tuple[ListedJob, ...] = ()


def walk(line: Sequence[ListedJob], view: View, expired: Bools) -> Walked:
    """Take off those who ended or whose lease did; what ghosts hold is taken from the ledger."""
    table = view.table
    left, at = [runner for runner in line if runner.job not in table or view.holds(runner.job)], 0
    while at < len(left):
        job = left[at].job
        if job not in table or expired[table.row(job)]:
            del left[at]  # the next one takes its place and is passed over
        at += 1
    ghosts = []
    for runner in [runner for runner in left if runner.job not in table]:
        if view.free.fits(runner.on):
            view.free.take(runner.on)
            ghosts.append(runner)
    stay = [runner for runner in left if runner.job in table or runner in ghosts]
    return Walked(tuple(stay), tuple(ghosts))


@dataclass(frozen=True, eq=False)
class RowsWithQueue(AccountRows):
    """Columns of jobs, with the list after a walk."""

    walked: Walked = Walked()


class QuotaTurn(AstraeaDecision):
    """New jobs displace others until the quota is kept, whether or not they then find a place."""

    def line_up(self, line: Sequence[ListedJob]) -> tuple[ListedJob, ...]:
        """The list of running jobs: without the displaced, the started last."""
        view = self._view
        gone = {view.job(row).id for row in self.displaced}
        begun = [(view.job(row), on) for row, on in self.started.items()]
        more = (ListedJob(job.id, tenant_of(job), on) for job, on in begun)
        return (*(runner for runner in line if runner.job not in gone), *more)

    def _seat(
        self, row: int, spare: Sequence[int], used: float, allowed: float
    ) -> tuple[Allocation | None, float]:
        freed = self._make_way(spare, used - allowed) if self._is_new(row) else 0.0
        return (self._place(row) if used - freed <= allowed + SLACK else None), freed

    def _make_way(self, spare: Sequence[int], over: float) -> float:
        """Send jobs back to wait until the quota is kept, wherever they were; GPUs given up."""
        freed = 0.0
        for victim in [row for row in spare if row not in self.displaced]:
            if freed >= over - SLACK:
                break
            held = self._view.allocation(victim)
            assert held is not None
            self._view.free.give(held)
            self.displaced.add(victim)
            freed += float(self._view.table.need[victim])
        return freed


@dataclass(frozen=True)
class AuthorsAstraea(Astraea):
    """Astraea as in the authors' simulator, with which it agrees in every job."""

    _in_order = _always_looks = True
    _counts_open_hour = False
    _turn = QuotaTurn

    @property
    def about(self) -> About:
        """Jobs are saved when a lease ends, and only then."""
        return replace(super().about, saves_every=self._whole_lease, resume_s=0.0)

    def _advance(self, kept: AstraeaMemory, view: View) -> RowsWithQueue:
        """The rows of now, and the list of running jobs after it was walked."""
        rows = advance(kept, view, None, self.check)
        line = kept.rows.walked.line if isinstance(kept.rows, RowsWithQueue) else ()
        known = {runner.job for runner in line}
        others = [
            ListedJob(job.id, tenant_of(job), on)
            for job, on in zip(view.table.jobs, view.table.allocations, strict=True)
            if on is not None and job.id not in known
        ]
        walked = walk((*line, *others), view, super()._ended(view, rows))
        return RowsWithQueue(**{f.name: getattr(rows, f.name) for f in fields(rows)}, walked=walked)

    def _count_hours(self, kept: AstraeaMemory, now: float) -> Hours:
        """Count the jobs seen at the end of an hour in the next one."""
        return count_hours(kept, now, self.history, ahead=self.check)

    def _quotas(self, view: View, kept: AstraeaMemory, hours: Hours) -> dict[str, float]:
        """Whole GPUs."""
        return {n: float(int(q)) for n, q in super()._quotas(view, kept, hours).items()}

    def _too_large(self, view: View, quotas: Mapping[str, float]) -> dict[JobId, str]:
        """Jobs above the quota of their tenant."""
        return {
            job.id: f"asks for more GPUs than the quota of its tenant, {quotas[tenant_of(job)]:g}"
            for job, on in zip(view.table.jobs, view.table.allocations, strict=True)
            if on is None and job.demand.gpus * job.demand.share > quotas[tenant_of(job)] + SLACK
        }

    def _ended(self, view: View, rows: AccountRows) -> Bools:
        """Return listed jobs whose lease is over as skipped."""
        listed = np.zeros(len(view.table), dtype=bool)
        listed[_rows_of(view, _walked(rows).line)] = True
        return super()._ended(view, rows) & ~listed

    def _best_served(self, view: View, rows: AccountRows, early: list[int]) -> list[int]:
        """Return the best served by the list, and by fairness without their lease."""
        saved = rows.fairness_of(rows.executed - (rows.ran - rows.leased))
        if self.order == "reward":
            saved = classify(saved)
        spare = [row for row in _rows_of(view, _walked(rows).line) if row in set(early)]
        return sorted(spare, key=lambda row: (-saved[row], -view.table.submitted[row]))

    def _jobs(
        self, view: View, rows: AccountRows, running: Bools
    ) -> Iterator[tuple[str, float, bool]]:
        """With those that have ended and were skipped."""
        yield from super()._jobs(view, rows, running)
        yield from ((ghost.tenant, ghost.on.counted_gpus, True) for ghost in _walked(rows).ghosts)

    def _plan(self, view: View, lease: Leases, turn: AstraeaDecision) -> Plan:
        """Save progress whenever a lease ends, also where the next one follows at once."""
        renewed = {view.job(r).id: on for r, on in turn.started.items() if lease.ended[r]}
        return Plan({**super()._plan(view, lease, turn).changes, **renewed})

    def _remember(
        self,
        view: View,
        rows: AccountRows,
        lease: Leases,
        turn: AstraeaDecision,
        quotas: Mapping[str, float],
        hours: Hours,
        lengths: Lengths,
    ) -> AstraeaMemory:
        """A job that is displaced loses what it did in its lease."""
        memory = super()._remember(view, rows, lease, turn, quotas, hours, lengths)
        lost, displaced = rows.lost.copy(), list(turn.displaced)
        lost[displaced] += lease.in_lease[displaced]
        assert isinstance(turn, QuotaTurn)
        assert isinstance(memory.rows, RowsWithQueue)
        walked = replace(_walked(rows), line=turn.line_up(_walked(rows).line))
        return replace(memory, rows=replace(memory.rows, lost=lost, walked=walked))

    def _next_look(
        self, view: View, rows: AccountRows, rejected: Mapping[JobId, str]
    ) -> float | None:
        """At once for those skipped, and while GPUs are free: the order changes with time."""
        waiting = ~rows.running
        waiting[[view.table.row(job) for job in rejected]] = False
        if _walked(rows).ghosts or (waiting.any() and view.free.room() > SLACK):
            return self._follows(view.now)
        return super()._next_look(view, rows, rejected)


def _walked(rows: AccountRows) -> Walked:
    return rows.walked if isinstance(rows, RowsWithQueue) else Walked()


def _rows_of(view: View, line: Sequence[ListedJob]) -> list[int]:
    return [view.table.row(runner.job) for runner in line if runner.job in view.table]
