"""Promised deadlines where each tenant has cells of its own, and where spot jobs give way."""

from __future__ import annotations

import pytest

import weft
from weft.core.model.job import Demand, Job, JobId, Or
from weft.core.model.trace import Trace, Truth
from weft.core.plan.view import PromiseTerms
from weft.core.spec.registry import build
from weft.testing.build import view_of

LENGTH_S = 1000.0
CELLS = "hived:cells=a@node=1/b@node=1|fifo"


def due(name: str, tenant: str, at: float, by: float | None, firm: Or = Or.DECLINE) -> Job:
    return Job(
        JobId(name),
        at,
        Demand(4),
        tenant=tenant,
        deadline=by,
        deadline_or=Or.UNSAID if by is None else firm,
        hints={"duration_s": LENGTH_S},
    )


def ends(policy: str, *jobs: Job) -> dict[str, float]:
    """When jobs ended that did, by name."""
    trace = Trace("due", tuple((job, Truth(LENGTH_S)) for job in jobs))
    outcome = weft.simulate(trace, policy, "2x4:v100").outcomes[policy][0]
    rows = zip(outcome.per_job.id, outcome.per_job.end_s.tolist(), strict=True)
    return {name: end for name, end in rows if end == end}


def test_a_tenant_is_promised_what_its_own_cells_can_keep() -> None:
    first, soon = due("first", "a", 0.0, None), due("soon", "a", 10.0, 1200.0)
    late, other = due("late", "a", 20.0, 1300.0), due("other", "b", 30.0, 1300.0)

    ended = ends(f"promise|{CELLS}", first, soon, late, other)

    assert ended.keys() == {"first", "soon", "other"}
    assert ended["soon"] <= 1200.0
    assert ended["other"] <= 1300.0


def test_nothing_is_promised_to_who_has_no_cells() -> None:
    view = view_of(
        "2x4:v100", due("guest", "c", 0.0, 5000.0), due("warned", "c", 0.0, 9e9, Or.WARN)
    )
    plan = build("policy", f"promise|{CELLS}").decide(view)

    assert plan.rejected == {
        "guest": "no deadline can be promised: tenant 'c' has no cells of its own"
    }
    assert plan.changes.keys() == {"warned"}
    assert plan.reasons[JobId("warned")].startswith("no deadline can be promised: tenant 'c'")


@pytest.mark.parametrize("policy", ["fifo", CELLS, "gfs|fifo"])
def test_a_simulation_without_promises_declines_nobody(policy: str) -> None:
    jobs = [due(f"j{i}", "ab"[i % 2], float(i), 1500.0) for i in range(5)]

    assert len(ends(policy, *jobs)) == 5


def test_rules_of_promises_reach_the_policy_that_must_be_shown_everybody() -> None:
    job = due("one", "a", 0.0, LENGTH_S + 40.0)  # one restart of 30 s more, but not two
    for restarts, admitted in ((1, True), (2, False)):
        for inner in ("gfs|fifo", CELLS):
            plan = build("policy", f"promise:restarts={restarts}|{inner}").decide(
                view_of("2x4:v100", job)
            )

            assert (job.id not in plan.rejected) == admitted


def test_an_option_of_promises_is_a_field_of_what_is_shown() -> None:
    assert view_of(4).promises is None
    assert PromiseTerms() == PromiseTerms(60.0, 0.9, 2)
