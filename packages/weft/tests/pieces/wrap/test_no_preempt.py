"""Jobs that may not be stopped, under a policy that would stop or move anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from weft.core.events.event import Decided, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.state import State
from weft.pieces.wrap.no_preempt import NoPreempt

FIRM, SOFT, NEXT = JobId("firm"), JobId("soft"), JobId("next")


def on(*gpus: int) -> Allocation:
    return Allocation((Slice(NodeId("v100-0"), gpus),))


@dataclass
class Rude:
    """Wants the same of whomever it sees, and notes whom it saw."""

    wants: Mapping[JobId, Allocation | None]
    saw: list[set[str]] = field(default_factory=list)

    about = About("rude", "of this test")

    def decide(self, view: View) -> Plan:
        names = {job.id for job in view.table.jobs}
        self.saw.append({str(name) for name in names})
        return Plan({job: to for job, to in self.wants.items() if job in names})


def seen() -> View:
    """Four GPUs: one job that may not be stopped on the first, one that may, one that waits."""
    state = State(parse_cluster("1x4:v100"))
    for name, firm in ((FIRM, True), (SOFT, False), (NEXT, False)):
        state.fold(0.0, Submitted(Job(name, demand=Demand(1), preemptible=not firm)))
    state.fold(0.0, Decided(1, {FIRM: on(0), SOFT: on(1)}))
    for name in (FIRM, SOFT):
        state.fold(0.0, Started(name, 1))
    return View(9.0, state.table, state.cluster, state.free, Knowledge())


@pytest.mark.parametrize("to", [None, on(3)])
def test_a_plan_that_stops_or_moves_a_firm_job_is_made_again_without_it(
    to: Allocation | None,
) -> None:
    rude = Rude({FIRM: to, SOFT: None, NEXT: on(2)})

    plan = NoPreempt(rude).decide(seen())

    assert dict(plan.changes) == {SOFT: None, NEXT: on(2)}
    assert rude.saw == [{"firm", "soft", "next"}, {"soft", "next"}]


@pytest.mark.parametrize("wants", [{SOFT: None}, {SOFT: on(3)}, {NEXT: on(2)}, {FIRM: on(0)}])
def test_a_plan_that_leaves_firm_jobs_where_they_are_is_kept_as_it_is(
    wants: Mapping[JobId, Allocation | None],
) -> None:
    rude = Rude(wants)

    plan = NoPreempt(rude).decide(seen())

    assert dict(plan.changes) == wants
    assert rude.saw == [{"firm", "soft", "next"}]
