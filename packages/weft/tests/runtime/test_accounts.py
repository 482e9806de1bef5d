"""The accounts: a fold of the log."""

from __future__ import annotations

import pytest

from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Job, JobId, NodeId, Sharing, Slice
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.entitlement import Entitlement, TenantTerms
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.spending import Spending

A = JobId("a")
N = NodeId("n")


def on(*gpus: int, share: float = 1.0) -> Allocation:
    return Allocation((Slice(N, gpus),), Sharing(share))


def record_after(*events: tuple[float, facts.Event]) -> JobRecord:
    ledger = Ledger()
    ledger.fold(0.0, facts.Submitted(Job(A, tenant="t")))
    for at, event in events:
        ledger.fold(at, event)
    assert sum(account.gpu_s for account in ledger.used(100.0).values()) == ledger.jobs[A].gpu_s.at(
        100.0
    )
    return ledger.jobs[A]


def test_gpu_seconds_run_from_the_start_to_the_end() -> None:
    record = record_after(
        (1.0, facts.Decided(1, {A: on(0, 1)})),
        (2.0, facts.Started(A, 1)),
        (5.0, facts.Finished(A, 1)),
    )

    assert record.gpu_s.at(100.0) == 6.0
    assert (record.outcome, record.started, record.ended, record.restarts) == (
        "succeeded",
        2.0,
        5.0,
        0,
    )


def test_a_share_counts_as_such_and_may_change() -> None:
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0, share=0.5)})),
        (0.0, facts.Started(A, 1)),
        (4.0, facts.Decided(2, {A: on(0, share=0.25)})),
        (8.0, facts.Stopped(A, 1)),
    )

    assert record.gpu_s.at(100.0) == pytest.approx(3.0)


def test_another_part_of_the_host_is_no_new_attempt() -> None:
    thinner = Allocation((Slice(N, (0,), cpus=1.0),), Sharing(0.5))
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0)})),
        (0.0, facts.Started(A, 1)),
        (4.0, facts.Decided(2, {A: thinner})),
        (8.0, facts.Stopped(A, 1)),
    )

    assert record.attempt == 1
    assert record.gpu_s.at(100.0) == pytest.approx(6.0)


def test_a_cancelled_job_pays_until_it_has_left() -> None:
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0)})),
        (0.0, facts.Started(A, 1)),
        (4.0, facts.Cancelled(A)),
        (6.0, facts.Stopped(A, 1)),
    )

    assert record.gpu_s.at(100.0) == 6.0
    assert (record.outcome, record.ended) == ("cancelled", 4.0)


def test_a_late_start_of_a_replaced_attempt_pays_for_what_it_was_promised() -> None:
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0, 1)})),
        (1.0, facts.Decided(2, {A: on(2)})),
        (2.0, facts.Started(A, 1)),
        (3.0, facts.Stopped(A, 1)),
        (4.0, facts.Started(A, 2)),
        (5.0, facts.Finished(A, 2)),
    )

    assert record.gpu_s.at(100.0) == 2.0 + 1.0
    assert (record.attempt, record.starts) == (2, 2)


def test_the_same_start_told_twice_counts_once() -> None:
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0)})),
        (1.0, facts.Started(A, 1)),
        (3.0, facts.Started(A, 1)),
        (5.0, facts.Finished(A, 1)),
    )

    assert record.gpu_s.at(100.0) == 4.0


def test_failures_and_lost_nodes_free_the_job_for_another_attempt() -> None:
    record = record_after(
        (0.0, facts.Decided(1, {A: on(0)})),
        (0.0, facts.Started(A, 1)),
        (1.0, facts.Failed(A, 1, "broken", retry=True)),
        (2.0, facts.Decided(2, {A: on(0)})),
        (2.0, facts.Started(A, 2)),
        (3.0, facts.NodeDown(N)),
        (4.0, facts.Stopped(A, 2)),
        (5.0, facts.Noticed(A, 2, "info", "hello")),
    )

    assert (record.attempt, record.failures, record.reason) == (2, 1, "")
    assert record.allocation is None
    assert record.gpu_s.at(100.0) == 1.0 + 2.0
    assert record.notices == ((5.0, "info", "hello"),)


def test_only_failures_of_its_own_since_it_got_on_count() -> None:
    def failing(attempt: int, **how: bool) -> tuple[tuple[float, facts.Event], ...]:
        promise = (float(attempt), facts.Decided(attempt, {A: on(0)}))
        return promise, (attempt + 0.5, facts.Failed(A, attempt, "x", retry=True, **how))

    twice = failing(1) + failing(2)
    lost = failing(3, lost=True)
    again = ((4.0, facts.Decided(4, {A: on(0)})), (4.1, facts.Started(A, 4)))

    assert record_after(*twice).failures == 2
    assert record_after(*twice, *lost).failures == 2
    assert record_after(*twice, *lost, *again, (4.2, facts.Saved(A, 4, 10))).failures == 0


def test_rejected_jobs_have_failed_with_the_reason() -> None:
    record = record_after((1.0, facts.Decided(1, {}, {A: "too large"})))

    assert (record.outcome, record.reason) == ("failed", "rejected: too large")


def test_tenants_are_entitled_to_a_weighted_part_or_what_their_jobs_ask_for() -> None:
    ledger = Ledger()
    ledger.entitlement.terms = TenantTerms({"u": 3.0})
    for tenant, count in (("t", 8), ("u", 8)):
        for i in range(count):
            ledger.fold(0.0, facts.Submitted(Job(JobId(f"{tenant}{i}"), tenant=tenant)))
    ledger.entitle(0.0, 8.0)

    after_100 = ledger.used(100.0)
    for i in range(7):
        ledger.fold(100.0, facts.Cancelled(JobId(f"u{i}")))
    ledger.entitle(100.0, 8.0)
    after_200 = ledger.used(200.0)

    assert {name: account.entitled_s for name, account in after_100.items()} == {
        "t": 200.0,
        "u": 600.0,
    }
    assert {name: account.entitled_s for name, account in after_200.items()} == {
        "t": 900.0,
        "u": 700.0,
    }


def test_nobody_is_entitled_to_more_than_their_limit_and_the_others_have_the_rest() -> None:
    ledger = Ledger()
    limits = {"limits": {"t": 2.0, "u@a100": 1.0}}
    ledger.entitlement.terms = TenantTerms.of(
        PartSpec("fifo", wrappers=(PartSpec("quota", limits),))
    )
    for tenant in ("t", "u"):
        for i in range(8):
            ledger.fold(0.0, facts.Submitted(Job(JobId(f"{tenant}{i}"), tenant=tenant)))
    ledger.entitle(0.0, 8.0)

    due = {name: account.entitled_s for name, account in ledger.used(100.0).items()}
    again = Entitlement()
    again.load(ledger.entitlement.save())

    assert due == {"t": 200.0, "u": 600.0}
    assert (again.rates, dict(again.terms.limits)) == ({"t": 2.0, "u": 6.0}, {"t": 2.0})


M = NodeId("m")


def spent_after(until: float, *events: tuple[float, facts.Event]) -> Spending:
    ledger = Ledger()
    for first in (
        facts.NodeUp(Node(N, "a100", 4)),
        facts.NodeUp(Node(M, "v100", 4)),
        facts.Submitted(Job(A)),
    ):
        ledger.fold(0.0, first)
    for at, event in events:
        ledger.fold(at, event)
    record = ledger.jobs[A]
    return record.spending.at(until, record.gpu_s)


def test_gpu_time_is_known_by_kind_also_of_a_job_that_moved_or_has_several() -> None:
    both = Allocation((Slice(N, (0,)), Slice(M, (0, 1, 2))))
    spent = spent_after(
        20.0,
        (0.0, facts.Decided(1, {A: on(0, 1)})),
        (0.0, facts.Started(A, 1)),
        (5.0, facts.Decided(2, {A: None})),
        (5.0, facts.Stopped(A, 1)),
        (6.0, facts.Decided(3, {A: both})),
        (10.0, facts.Started(A, 2)),
    )

    assert spent.kinds == {"a100": 10.0 + 10.0, "v100": 30.0}


def test_idle_time_begins_before_it_is_noticed_and_ends_with_the_next_step() -> None:
    events = (
        (0.0, facts.Decided(1, {A: on(0, 1)})),
        (0.0, facts.Started(A, 1)),
        (100.0, facts.Reported(A, 1, Report(steps=5.0))),
        (1000.0, facts.Noticed(A, 1, "idle", "holds 2 GPUs")),
        (1200.0, facts.Reported(A, 1, Report(steps=5.0))),
        (1400.0, facts.Reported(A, 1, Report(steps=6.0))),
    )

    assert spent_after(1300.0, *events[:-1]).idle == 2 * (1300.0 - 400.0)
    assert spent_after(5000.0, *events).idle == 2 * (1400.0 - 400.0)


def test_work_that_a_restart_lost_is_no_idle_time_as_well() -> None:
    spent = spent_after(
        5000.0,
        (0.0, facts.Decided(1, {A: on(0, 1)})),
        (0.0, facts.Started(A, 1)),
        (100.0, facts.Saved(A, 1, 5)),
        (1000.0, facts.Noticed(A, 1, "idle", "holds 2 GPUs")),
        (1500.0, facts.Failed(A, 1, "gone", retry=True, lost=True)),
    )

    assert (spent.lost, spent.idle, spent.idle_since) == (2 * 300.0, 2 * 1100.0, None)
