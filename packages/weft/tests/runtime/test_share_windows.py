"""What tenants used of what they were entitled to, in windows that grow with time."""

from __future__ import annotations

import pytest

from weft.core.events.event import Decided, Started, Submitted, Woken
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.runtime.records.entitlement import Entitlement, TenantTerms
from weft.runtime.records.ledger import Ledger
from weft.runtime.records.usage import LONGEST_S, MOST, ShareWindows, TenantUsage


def test_a_stretch_is_divided_between_the_windows_it_touches() -> None:
    share_windows = ShareWindows()

    share_windows.spent("a", 5.0, 25.0, 2.0)
    share_windows.entitled("a", 0.0, 20.0, 3.0)

    assert share_windows.windows() == [0, 1, 2]
    assert share_windows.sums() == {"a": {0: (10.0, 30.0), 1: (20.0, 30.0), 2: (10.0, 0.0)}}


def test_windows_become_longer_before_there_are_too_many_and_nothing_is_lost() -> None:
    share_windows = ShareWindows()

    for i in range(400):
        share_windows.spent("a", 60.0 * i, 60.0 * i + 30.0, 2.0)

    assert len(share_windows.windows()) <= MOST
    assert share_windows.width_s == 160.0
    assert sum(used for used, _ in share_windows.sums()["a"].values()) == pytest.approx(400 * 60.0)


def test_the_oldest_windows_go_when_windows_are_long_enough() -> None:
    share_windows = ShareWindows()
    end = 10 * MOST * LONGEST_S

    share_windows.spent("early", 0.0, 50.0, 1.0)
    share_windows.spent("late", end - 100.0, end, 1.0)
    share_windows.spent("early", 60.0, 70.0, 1.0)

    assert share_windows.width_s == LONGEST_S
    assert len(share_windows.windows()) == MOST
    assert sum(used for used, _ in share_windows.sums()["late"].values()) == pytest.approx(100.0)
    assert not share_windows.sums().get("early")


def test_what_is_saved_goes_on_where_it_was() -> None:
    saved, again = ShareWindows(), ShareWindows()
    saved.spent("a", 5.0, 4000.0, 2.0)

    again.load(saved.save())
    again.spent("a", 4000.0, 4010.0, 1.0)
    saved.spent("a", 4000.0, 4010.0, 1.0)

    assert again.save() == saved.save()


def test_what_still_runs_counts_until_now() -> None:
    ledger, job = Ledger(), JobId("a")
    on = Allocation((Slice(NodeId("n"), (0, 1)),))
    ledger.entitlement.terms = TenantTerms({"t": 1.0})
    ledger.fold(0.0, Submitted(Job(job, tenant="t")))
    ledger.entitle(0.0, 4.0)
    ledger.fold(0.0, Decided(1, {job: on}))
    ledger.fold(4.0, Started(job, 1))

    shares = ledger.shares(14.0)

    assert shares.sums() == {"t": {0: (12.0, 10.0), 1: (8.0, 4.0)}}
    assert ledger.shares(14.0).sums() == shares.sums()


def test_of_what_is_wanted_in_one_instant_the_last_counts_until_time_goes_on() -> None:
    due, usage, wanted = Entitlement(), TenantUsage(), {"a": 4.0}
    due.update_rates(0.0, usage, wanted, 4.0)
    wanted["b"] = 4.0
    due.update_rates(0.0, usage, wanted, 4.0)

    due.pass_to(10.0, Woken())
    wanted["a"] = 0.0
    due.update_rates(10.0, usage, wanted, 4.0)

    assert due.rates == {"b": 4.0}
    assert usage.windows.sums() == {"a": {0: (0.0, 20.0)}, "b": {0: (0.0, 20.0)}}
