"""What tenants used, day by day."""

from __future__ import annotations

import pytest

from weft.core.events import event as facts
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.usage import DAY_S, DayUsage, TenantUsage

A, B = JobId("a"), JobId("b")
ON = Allocation((Slice(NodeId("n"), (0, 1)),))


def folded(*events: tuple[float, facts.Event]) -> Ledger:
    ledger = Ledger()
    for at, event in events:
        ledger.fold(at, event)
    return ledger


def test_a_run_over_midnight_is_split_between_the_days() -> None:
    usage = TenantUsage()

    usage.spent("t", DAY_S - 10.0, 2 * DAY_S + 5.0, 2.0)

    assert [(day.day, day.gpu_s) for day in usage.days()] == [(0, 20.0), (1, 2 * DAY_S), (2, 10.0)]


def test_sums_are_over_whole_days() -> None:
    usage = TenantUsage(
        [DayUsage("t", day, 1.0, 2, 3) for day in range(5)] + [DayUsage("u", 9, 7.0)]
    )

    total = usage.total(DAY_S * 1.5, DAY_S * 3.0)

    assert total == {"t": DayUsage("t", 1, 2.0, 4, 6)}
    assert set(usage.total()) == {"t", "u"}


def test_what_runs_counts_up_to_now_and_within_the_days_asked_for() -> None:
    ledger = folded(
        (0.0, facts.Submitted(Job(A, tenant="t"))),
        (0.0, facts.Decided(1, {A: ON})),
        (DAY_S - 100.0, facts.Started(A, 1)),
    )

    assert ledger.used(DAY_S + 50.0)["t"].gpu_s == pytest.approx(300.0)
    assert ledger.used(DAY_S + 50.0, since=DAY_S)["t"].gpu_s == pytest.approx(100.0)
    assert ledger.used(DAY_S + 50.0, until=DAY_S)["t"].gpu_s == pytest.approx(200.0)


def test_accounts_equal_the_sums_over_jobs_whatever_happened() -> None:
    ledger = folded(
        (1.0, facts.Submitted(Job(A, tenant="t"))),
        (2.0, facts.Submitted(Job(B, tenant="u"))),
        (3.0, facts.Decided(1, {A: ON, B: ON})),
        (4.0, facts.Started(A, 1)),
        (5.0, facts.Started(B, 1)),
        (DAY_S + 6.0, facts.Failed(A, 1, "oh", retry=True)),
        (DAY_S + 7.0, facts.Decided(2, {A: ON})),
        (DAY_S + 8.0, facts.Started(A, 2)),
        (DAY_S + 9.0, facts.Cancelled(B)),
        (DAY_S + 11.0, facts.Stopped(B, 1)),
        (DAY_S + 12.0, facts.Finished(A, 2)),
    )

    used = ledger.used(5 * DAY_S)

    for tenant, job in (("t", A), ("u", B)):
        assert used[tenant].gpu_s == pytest.approx(ledger.jobs[job].gpu_s.at(5 * DAY_S))
        assert used[tenant].jobs == 1
    assert (used["t"].restarts, used["u"].restarts) == (1, 0)


def test_a_ledger_that_is_read_back_goes_on_counting() -> None:
    first = folded(
        (1.0, facts.Submitted(Job(A, tenant="t"))),
        (2.0, facts.Decided(1, {A: ON})),
        (3.0, facts.Started(A, 1)),
    )
    again = Ledger(first.jobs.values(), first.promised(), first.usage.days())

    for ledger in (first, again):
        ledger.fold(9.0, facts.Finished(A, 1))

    assert again.used(20.0) == first.used(20.0)
    assert again.used(20.0)["t"].gpu_s == 12.0


def test_what_was_never_in_use_is_not_counted_day_by_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start of a job ends a stretch without GPUs that began in 1970."""

    def count(since: float, until: float) -> list[tuple[int, float]]:
        raise AssertionError((since, until))

    monkeypatch.setattr("weft.runtime.records.usage._by_day", count)
    usage = TenantUsage()

    usage.spent("a", 0.0, 20_000 * DAY_S, 0.0)
    usage.entitled("a", 0.0, 20_000 * DAY_S, 0.0)

    assert usage.days() == []
