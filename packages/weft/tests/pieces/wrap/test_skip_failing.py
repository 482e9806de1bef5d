"""A decision that fails because of one job is taken without that job, which is told so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from tests.broken_policy import BrokenPolicy

from weft.core.errors import PlanError
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.pieces.wrap.skip_failing import SkipFailing, SkipFailingMemory
from weft.policies.fifo import Fifo
from weft.testing import view_of


@dataclass(frozen=True, slots=True)
class Allergic:
    """First in, first out, unless it sees a job whose name begins with `bad`."""

    asked: list[int] = field(default_factory=list)
    named: bool = False
    about = About("allergic", "of this test")

    def decide(self, view: View) -> Plan:
        self.asked.append(len(view.table))
        bad = [job.id for job in view.table.jobs if job.id.startswith("bad")]
        if bad and self.named:
            raise PlanError(f"cannot place {bad[0]}", job=bad[0])
        if bad:
            raise ZeroDivisionError("float division by zero")
        return Fifo(backfill=True).decide(view)


def jobs(count: int, *bad: int) -> list[Job]:
    names = [f"bad{i}" if i in bad else f"job{i}" for i in range(count)]
    return [Job(JobId(name), demand=Demand(1)) for name in names]


@pytest.mark.parametrize("bad", [0, 17, 49])
@pytest.mark.parametrize("named", [True, False])
def test_everybody_else_is_decided_about(bad: int, named: bool) -> None:
    policy = Allergic(named=named)
    view = view_of(100, *jobs(50, bad))

    plan = SkipFailing(policy).decide(view)

    assert set(plan.changes) == {job.id for job in view.table.jobs} - {f"bad{bad}"}
    assert "policy 'allergic' fails with it" in plan.reasons[JobId(f"bad{bad}")]
    assert len(policy.asked) <= 10  # bisection, not one after the other
    assert plan.wake_at is not None


def test_who_was_found_once_is_not_looked_for_in_every_decision() -> None:
    policy = Allergic()
    view = view_of(100, *jobs(50, 20))
    first = SkipFailing(policy).decide(view)
    policy.asked.clear()

    plan = SkipFailing(policy).decide(replace(view, now=1.0, memory=first.memory))

    assert policy.asked == [49]
    assert JobId("bad20") in plan.reasons


def test_who_was_found_is_tried_again_after_a_while() -> None:
    view = view_of(100, *jobs(5, 2))
    first = SkipFailing(Allergic(), again_s=60.0).decide(view)

    plan = SkipFailing(Fifo(backfill=True), again_s=60.0).decide(
        replace(view, now=61.0, memory=first.memory)
    )

    assert JobId("bad2") in plan.changes
    assert plan.memory == SkipFailingMemory(None)


def test_who_fails_again_is_tried_again_after_as_long_and_not_at_once() -> None:
    view = view_of(100, *jobs(5, 2))
    wrapper = SkipFailing(Allergic(), again_s=60.0)
    plan, looks = wrapper.decide(view), []
    for now in (10.0, 60.0, 70.0, 120.0):
        plan = wrapper.decide(replace(view, now=now, memory=plan.memory))
        looks.append(plan.wake_at)

    assert looks == [60.0, 120.0, 120.0, 180.0]


def test_who_is_well_again_is_told_nothing_any_more() -> None:
    view = view_of(100, *jobs(5, 2))
    first = SkipFailing(Allergic(), again_s=60.0).decide(view)

    plan = SkipFailing(Fifo(backfill=True), again_s=60.0).decide(
        replace(view, now=60.0, memory=first.memory)
    )

    assert plan.reasons[JobId("bad2")] == ""


def test_several_are_found_and_more_than_that_are_the_policys_fault() -> None:
    three = SkipFailing(Allergic()).decide(view_of(100, *jobs(20, 3, 7, 11)))

    assert {"bad3", "bad7", "bad11"} == set(three.reasons)
    with pytest.raises(ZeroDivisionError):
        SkipFailing(Allergic()).decide(view_of(100, *jobs(20, 3, 7, 11, 15)))


def test_a_policy_that_fails_without_any_job_fails() -> None:
    broken = BrokenPolicy(RuntimeError("always"))

    with pytest.raises(RuntimeError, match="always"):
        SkipFailing(broken).decide(view_of(8, *jobs(3)))


def test_a_plan_that_is_wrong_about_one_job_is_made_without_it() -> None:
    @dataclass(frozen=True, slots=True)
    class Generous:
        """Gives a job called `bad` a node that is not there."""

        about = About("generous", "of this test")

        def decide(self, view: View) -> Plan:
            changes = dict(Fifo(backfill=True).decide(view).changes)
            for job in changes:
                if job.startswith("bad"):
                    changes[job] = Allocation((Slice(NodeId("nowhere"), (0,)),))
            return Plan(changes)

    plan = SkipFailing(Generous()).decide(view_of(8, *jobs(4, 1)))

    assert set(plan.changes) == {"job0", "job2", "job3"}
    assert "devices that it cannot have" in plan.reasons[JobId("bad1")]


def test_nothing_is_changed_where_nothing_fails() -> None:
    view = view_of(8, *jobs(4))

    assert SkipFailing(Fifo()).decide(view).changes == Fifo().decide(view).changes
