"""Decisions without the jobs that a policy fails with.

One job whose numbers a policy cannot stand must not keep all jobs waiting: it is found by asking
again with fewer jobs, and left as it is until the policy is tried with it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial

import numpy as np

from weft.core.errors import PlanError, WeftError
from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.reasons import Blocker, Reason
from weft.core.plan.rules import check_plan
from weft.core.plan.taxonomy import Objective, declare
from weft.core.plan.view import View
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen
from weft.pieces.wrap.sub_cluster import decide_among
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper, WrapperMemory

MOST = 3  # jobs that are looked for in one decision; with more the policy itself is at fault
LONGEST = 200  # characters of an error in a reason


@frozen
class SkipFailingMemory(WrapperMemory):
    """The inner policy's memory; the jobs that it fails with, and until when they are left out."""

    spared: Mapping[JobId, str] = field(default_factory=dict)
    until: float = 0.0


@frozen
class SkipFailing(Wrapper):
    """Let a policy decide without jobs that make it fail; `again_s` later they are tried again."""

    again_s: float = 600.0

    adds = declare(Objective.GUARANTEES)

    def decide(self, view: View) -> Plan:
        """The inner policy's decision, for as many jobs as it stands."""
        kept = recall(view, SkipFailingMemory)
        spared = {job: why for job, why in kept.spared.items() if job in view.table}
        if view.now >= kept.until:
            spared = {}
        view = replace(view, memory=kept.inner)
        try:
            plan = self._ask(view, _rows(view, spared))
        except Exception as error:  # whatever it is, someone's job may be the cause
            spared, plan = self._search(view, spared, error)
        cleared = [job for job in kept.spared if job not in spared and job in view.table]
        plan = plan.explained({}, cleared)
        if not spared:
            return replace(plan, memory=SkipFailingMemory(plan.memory))
        known = view.now < kept.until and spared.keys() <= kept.spared.keys()
        until = kept.until if known else view.now + self.again_s
        return replace(
            plan,
            wake_at=until if plan.wake_at is None else min(plan.wake_at, until),
            reasons={**plan.reasons, **spared},
            blockers={**plan.blockers, **dict.fromkeys(spared, Blocker.SPARED)},
            memory=SkipFailingMemory(plan.memory, spared=spared, until=until),
        )

    def _ask(self, view: View, hidden: Bools) -> Plan:
        part = view.without(hidden) if hidden.any() else view
        mark = view.free.mark()
        try:
            plan = decide_among(self.inner, part) if hidden.any() else ask(self.inner, part)
        finally:
            view.free.rollback(mark)
        check_plan(part, plan, self.about)
        return plan

    def _search(
        self, view: View, spared: dict[JobId, str], error: Exception
    ) -> tuple[dict[JobId, str], Plan]:
        """The jobs to leave out, and the plan without them; raises `error` if none is to blame."""
        first = error
        for _ in range(MOST):
            hidden = _rows(view, spared)
            row = self._named(view, hidden, error)
            if row is None:
                row = self._blamed(view, hidden)
            if row is None:
                break
            spared = {**spared, view.job(row).id: _reason(self.about.name, error)}
            try:
                return spared, self._ask(view, _rows(view, spared))
            except Exception as another:  # there may be another one to blame
                error = another
        raise first

    def _named(self, view: View, hidden: Bools, error: Exception) -> int | None:
        """The row that the error itself names, if all is well without it."""
        if not isinstance(error, PlanError) or error.job is None:
            return None
        job = JobId(error.job)
        if job not in view.table or hidden[view.table.row(job)]:
            return None
        row = view.table.row(job)
        hidden = hidden.copy()
        hidden[row] = True
        return row if self._stands(view, hidden) else None

    def _blamed(self, view: View, hidden: Bools) -> int | None:
        """The first row, waiting ones before others, from which on the policy fails."""
        for among in (view.waiting(), view.running()):
            rows = np.flatnonzero(among & ~hidden)
            others = hidden | among
            if len(rows) and self._stands(view, others):
                return _first_bad(rows, partial(self._with, view, others))
        return None

    def _with(self, view: View, hidden: Bools, shown: Rows) -> bool:
        hidden = hidden.copy()
        hidden[shown] = False
        return self._stands(view, hidden)

    def _stands(self, view: View, hidden: Bools) -> bool:
        try:
            self._ask(view, hidden)
        except Exception:  # only whether, not what: the first error is reported
            return False
        return True


def _first_bad(rows: Rows, stands: Callable[[Rows], bool]) -> int:
    """The row that completes the shortest prefix with which it does not stand, by bisection."""
    good, bad = 0, len(rows)
    while bad - good > 1:
        middle = (good + bad) // 2
        if stands(rows[:middle]):
            good = middle
        else:
            bad = middle
    return int(rows[bad - 1])


def _rows(view: View, jobs: Mapping[JobId, str]) -> Bools:
    hidden = np.zeros(len(view.table), dtype=bool)
    for job in jobs:
        hidden[view.table.row(job)] = True
    return hidden


def _reason(policy: str, error: Exception) -> str:
    what = error.what if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
    return Reason(Blocker.SPARED, {"policy": policy, "error": what[:LONGEST]}).text
