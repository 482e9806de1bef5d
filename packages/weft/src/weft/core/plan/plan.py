"""The changes that a policy wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Protocol

from weft.core.errors import PlanError
from weft.core.model.job import Allocation, JobId, MemoryPlace
from weft.core.plan.reasons import Blocker, Reason
from weft.frozen import frozen


class Holdings(Protocol):
    """The allocations of jobs now; a view is one."""

    def holds(self, job: JobId) -> Allocation | None: ...

    def held(self) -> Mapping[JobId, Allocation]: ...


@frozen
class Plan:
    """Changes to what jobs hold.

    A job the plan does not name keeps what it has; None takes it away. `rejected` are jobs
    that can never run, with the reason. `wake_at` asks for a decision at that time even if
    nothing happens. `reasons` are why jobs wait, where the decision knows; an empty one takes back
    what was said before. `blockers` are the same in a word. `memory` comes back in the next view.
    `numbers` tell people how good the plan is, such as a `gap` or the `price` of a kind. `restarts`
    are changes that go through a checkpoint although the jobs could make them as they train, so
    that what they hold is free at once. `promised` are jobs that were promised their deadline now:
    that lasts whatever becomes of the memory. `facts` are the numbers and names of reasons.
    `memory_order` says who of the jobs that share devices gets device memory that becomes free: the
    lowest numbers, of equal ones the longest wait. A job that it does not name keeps its numbers.
    """

    changes: Mapping[JobId, Allocation | None] = field(default_factory=dict)
    rejected: Mapping[JobId, str] = field(default_factory=dict)
    wake_at: float | None = None
    reasons: Mapping[JobId, str] = field(default_factory=dict)
    memory: object = None
    blockers: Mapping[JobId, Blocker] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    restarts: frozenset[JobId] = frozenset()
    promised: frozenset[JobId] = frozenset()
    facts: Mapping[JobId, Mapping[str, object]] = field(default_factory=dict)
    memory_order: Mapping[JobId, MemoryPlace] = field(default_factory=dict)

    @property
    def does_nothing(self) -> bool:
        """True if it leaves everything as it is, and says nothing about jobs."""
        if self.changes or self.rejected or self.reasons:
            return False
        return not (self.blockers or self.promised)

    def explained(self, why: Mapping[JobId, Reason], cleared: Iterable[JobId] = ()) -> Plan:
        """The plan with reasons for these jobs; the reasons of `cleared` no longer hold."""
        if not why and not cleared:
            return self
        texts = {job: reason.text for job, reason in why.items()}
        words = {job: reason.blocker for job, reason in why.items()}
        return replace(
            self,
            reasons={**dict.fromkeys(cleared, ""), **self.reasons, **texts},
            blockers={**self.blockers, **words},
            facts={**self.facts, **{job: reason.values for job, reason in why.items()}},
        )

    def joined(self, more: Plan) -> Plan:
        """With the changes of another, each with reasons for the jobs that it changes."""
        mine = {job: text for job, text in self.reasons.items() if job not in more.changes}
        theirs = {job: text for job, text in more.reasons.items() if job in more.changes}
        changes = {**self.changes, **more.changes}
        promised = self.promised | more.promised
        order = {**self.memory_order, **more.memory_order}
        return replace(
            self, changes=changes, reasons={**mine, **theirs}, promised=promised, memory_order=order
        )

    @classmethod
    def target(cls, view: Holdings, everything: Mapping[JobId, Allocation]) -> Plan:
        """The changes that lead from what jobs hold now to exactly `everything`."""
        changes: dict[JobId, Allocation | None] = {
            job: wanted for job, wanted in everything.items() if view.holds(job) != wanted
        }
        changes.update({job: None for job in view.held() if job not in everything})
        return cls(changes)


NOTHING = Plan()


def merge(plans: Iterable[Plan]) -> Plan:
    """The union of plans for disjoint sets of jobs."""
    changes: dict[JobId, Allocation | None] = {}
    rejected: dict[JobId, str] = {}
    reasons: dict[JobId, str] = {}
    blockers: dict[JobId, Blocker] = {}
    wakes: list[float] = []
    memories: list[object] = []
    facts: dict[JobId, Mapping[str, object]] = {}
    promised: frozenset[JobId] = frozenset()
    order: dict[JobId, MemoryPlace] = {}
    for plan in plans:
        if twice := changes.keys() & plan.changes.keys():
            raise PlanError(f"two plans change {', '.join(sorted(twice))}")
        changes.update(plan.changes)
        rejected.update(plan.rejected)
        reasons.update(plan.reasons)
        blockers.update(plan.blockers)
        facts.update(plan.facts)
        wakes += [plan.wake_at] if plan.wake_at is not None else []
        memories.append(plan.memory)
        promised |= plan.promised
        order.update(plan.memory_order)
    wake = min(wakes, default=None)
    memory = tuple(memories)
    return Plan(
        changes,
        rejected,
        wake,
        reasons,
        memory,
        blockers,
        promised=promised,
        facts=facts,
        memory_order=order,
    )
