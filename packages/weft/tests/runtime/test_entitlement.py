"""What tenants are entitled to: their own first, then weighted parts, all from the log."""

from __future__ import annotations

import pytest

from weft.core.events import event as facts
from weft.core.model.job import Demand, Job, JobId
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.entitlement import TenantTerms
from weft.runtime.records.ledger import Ledger


@pytest.mark.parametrize(
    ("terms", "divided"),
    [
        (TenantTerms(), {"a": 20.0, "b": 12.0}),  # b wants no more
        (TenantTerms(own={"a": 16.0, "b": 16.0}), {"a": 20.0, "b": 12.0}),
        (TenantTerms(own={"a": 26.0}), {"a": 29.0, "b": 3.0}),
        (TenantTerms(own={"a": 40.0}), {"a": 30.0, "b": 2.0}),  # all that it wants
        (TenantTerms(own={"a": 40.0}, limits={"a": 10.0}), {"a": 10.0, "b": 12.0}),
        (TenantTerms(own={"g": 28.0}, parents={"a": "g"}), {"a": 30.0, "b": 2.0}),
        (
            TenantTerms(own={"b": 2.0, "g": 9.0}, parents={"a": "g", "b": "g"}),
            {"a": 20.0, "b": 12.0},
        ),
    ],
)
def test_a_tenant_gets_its_own_first_and_then_its_part(
    terms: TenantTerms, divided: dict[str, float]
) -> None:
    assert terms.divide({"a": 30.0, "b": 12.0}, 32.0) == pytest.approx(divided)


def ruled(**lend: object) -> facts.PolicyChanged:
    return facts.PolicyChanged(PartSpec("fifo", wrappers=(PartSpec("lend", lend),)))


def test_other_rules_count_from_the_event_that_brings_them() -> None:
    """Nothing but the log says what was due, so a restart counts the same."""
    ledger = Ledger()
    events: list[tuple[float, facts.Event]] = [
        (0.0, ruled(own={"a": 4.0})),
        (0.0, facts.Submitted(Job(JobId("j"), demand=Demand(8), tenant="a"))),
        (0.0, facts.Submitted(Job(JobId("k"), demand=Demand(8), tenant="b"))),
        (10.0, ruled(own={"a": 8.0})),
        (20.0, facts.Cancelled(JobId("k"))),
    ]

    for at, event in events:
        ledger.entitlement.pass_to(at, event)
        ledger.fold(at, event)
        ledger.entitle(at, 8.0)

    due = {tenant: usage.entitled_s for tenant, usage in ledger.used(20.0).items()}
    assert due == pytest.approx({"a": 60.0 + 80.0, "b": 20.0})
