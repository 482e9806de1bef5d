"""Records in memory and in the store's table: pages and counts against a scan of all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core.events import event as facts
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice, Tier
from weft.core.model.launch import Launch
from weft.core.spec.part_spec import PartSpec
from weft.core.state.ended_jobs import EndedFilter, EndedInMemory, EndedJobs
from weft.core.stops import Rung
from weft.runtime.records.job_records import ALL, ENDED, JobRecord, JobRecords, row_of
from weft.runtime.records.ledger import Ledger
from weft.store.sqlite import SqliteStore

Step = tuple[str, int, str]
WAYS = ["add", "end", "settle", "shelve", "forget"]
STEPS = st.lists(
    st.tuples(st.sampled_from(WAYS), st.integers(0, 30), st.sampled_from(ENDED)), max_size=80
)
TENANTS = ("", "t0", "t1")


class Scan:
    """The same by looking at every job."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, tuple[str, str, float]] = {}

    def after(self, last: int, tenant: str, outcome: str, since: float) -> list[JobId]:
        return [
            name
            for name, (whose, how, at) in self.jobs.items()
            if tenant in (ALL, whose) and outcome in (ALL, how) and at >= max(since, last + 1)
        ]


def played(steps: list[Step], ended: EndedJobs) -> tuple[JobRecords, Scan]:
    records, scan, names = JobRecords(ended=ended), Scan(), dict[int, JobId]()
    for what, slot, outcome in steps:
        job = names.get(slot)
        if what == "add" and job is None:
            number = records.following
            job = names[slot] = JobId(f"j{number}")
            records.add(Job(job, tenant=TENANTS[slot % 3]), float(number))
            scan.jobs[job] = (TENANTS[slot % 3], "", float(number))
        elif what == "end" and job in records.active:
            records.set(job, outcome=outcome, ended=1.0)
            records.end(job)
            scan.jobs[job] = (scan.jobs[job][0], outcome, scan.jobs[job][2])
        elif what == "settle" and job in records.leaving:
            records.release_to_store(job)
        elif what == "shelve":
            rows = [row_of(records.live[name]) for name in records.done]
            ended.put(rows)
            assert records.drop_stored(rows) == []
        elif what == "forget" and job is not None and records.forget([job]):
            ended.remove([job])
            del scan.jobs[job], names[slot]
    return records, scan


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndedJobs]:
    store = SqliteStore(tmp_path_factory.mktemp("table") / "events.db")
    yield store.ended
    store.close()


@pytest.fixture(params=["memory", "sqlite"], scope="module")
def ended(request: pytest.FixtureRequest, table: EndedJobs) -> EndedJobs:
    return table if request.param == "sqlite" else EndedInMemory()


@given(STEPS, st.sampled_from([ALL, "t0", "t1"]), st.sampled_from([ALL, *ENDED]))
def test_pages_are_those_of_a_scan(
    ended: EndedJobs, steps: list[Step], tenant: str, outcome: str
) -> None:
    ended.reset(0, ())
    records, scan = played(steps, ended)

    for last in (-1, *range(records.following)):
        for since in (0.0, 3.0):
            for limit in (2, 1000):
                read = records.page_reader(
                    limit, after=last, tenant=tenant, outcome=outcome, since=since
                )
                ids = [record.job.id for record in read()]
                assert ids == scan.after(last, tenant, outcome, since)[:limit]
    assert [*records] == [*scan.jobs]


@given(STEPS)
def test_counts_and_the_active_are_those_of_a_scan(ended: EndedJobs, steps: list[Step]) -> None:
    ended.reset(0, ())
    records, scan = played(steps, ended)

    for tenant in (ALL, "t0", "t1"):
        counted = {word: len(scan.after(-1, tenant, word, 0.0)) for word in ENDED}
        assert records.counts(tenant) == counted
    late = [record.job.id for record in records.ended_since(1.0, "failed", 1000)()]
    assert sorted(late) == sorted(scan.after(-1, ALL, "failed", 0.0))
    assert len(records.ended_since(1.0, "failed", 2)()) == min(len(late), 2)
    assert records.ended_since(2.0, "failed", 1000)() == []
    assert [*records.active] == [name for name, (_, how, _) in scan.jobs.items() if not how]
    assert len(records) == len(scan.jobs)
    again = JobRecords(records.live.values(), ended)
    ended.reset(records.following, again.live)
    again.count_ended()
    assert (again.counts(), dict(again)) == (records.counts(), dict(records))


def test_a_record_that_was_shelved_is_read_back_as_it_was(ended: EndedJobs) -> None:
    launch = Launch(("python", "train.py"), name="train", env={"A": "1"})
    job = Job(JobId("a:x"), 3.0, tenant="a", user="ann", launch=launch, hints={"duration_s": 4.5})
    job_record = JobRecord(job, 3.0, "failed", "it broke", 4.0, 5.0, 2, 2, 1, number=7)
    changed = replace(job_record, notices=((4.5, "info", "half"),), saved=12, heard=(4.0, 0.5))

    ended.reset(0, ())
    ended.put([row_of(changed)])

    records = JobRecords(ended=ended)
    assert records[job.id] == changed
    assert JobId("a:y") not in records
    assert ended.find_by_name("train", 5) == ended.find_by_name("x", 5, tenant="a") == ["a:x"]
    assert ended.find_by_name("train", 5, tenant="b") == ended.find_by_prefix("b", 5) == []
    assert ended.find_by_prefix("a", 5) == ended.latest(5, tenant="a", user="ann") == ["a:x"]


def test_the_last_that_failed_are_read_in_order_of_their_end(ended: EndedJobs) -> None:
    ended.reset(0, ())
    ends = {"a": 30.0, "b": 10.0, "c": 20.0, "d": 5.0}
    rows = [
        row_of(JobRecord(Job(JobId(name)), 1.0, "failed", ended=at, number=number))
        for number, (name, at) in enumerate(ends.items())
    ]
    ended.put(rows)
    records = JobRecords(ended=ended, following=len(rows))

    def read(at: float, outcome: str, limit: int) -> list[str]:
        return [record.job.id for record in records.ended_since(at, outcome, limit)()]

    assert read(10.0, "failed", 9) == ["b", "c", "a"]
    assert read(10.0, "failed", 2) == ["c", "a"]
    assert read(0.0, "succeeded", 9) == []


def test_what_is_asked_of_ended_jobs_is_answered_by_an_index(tmp_path: Path) -> None:
    """Not one question reads rows that it does not answer with."""
    store = SqliteStore(tmp_path / "events.db")
    asked: list[str] = []
    db = sqlite3.connect(tmp_path / "events.db")
    db.set_trace_callback(asked.append)
    store._reading._mine.db = db

    store.ended.get(JobId("x"))
    for tenant in (None, "t"):
        for outcome in (None, "failed"):
            store.ended.page(3, 5, EndedFilter(tenant, outcome))
        store.ended.find_by_name("x", 3, tenant=tenant)
        store.ended.find_by_prefix("x", 3, tenant=tenant)
        for user in (None, "u"):
            store.ended.latest(3, tenant=tenant, user=user)
    store.ended.first_since(3.0)
    store.ended.oldest(3)
    store.ended.ended_since(3.0, "failed", 3)
    db.set_trace_callback(None)

    plans = [row[3] for words in asked for row in db.execute(f"EXPLAIN QUERY PLAN {words}")]
    scans = [plan for plan in plans if plan.startswith("SCAN ended_jobs")]
    assert len(asked) > 12
    # Newest or oldest first, all of them: in the order of an index, as far as the limit.
    assert set(scans) <= {"SCAN ended_jobs", "SCAN ended_jobs USING INDEX ended_at"}
    assert scans.count("SCAN ended_jobs") <= 1
    assert not [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan and "LIMIT" in plan]
    store.close()
    db.close()


def fold(ledger: Ledger, *events: facts.Event) -> None:
    for at, event in enumerate(events):
        ledger.fold(float(at), event)


A, ON = JobId("a"), Allocation((Slice(NodeId("n"), (0,)),))


def test_a_job_that_was_cancelled_and_still_runs_is_kept_in_memory() -> None:
    ledger = Ledger()
    fold(ledger, facts.Submitted(Job(A)), facts.Decided(1, {A: ON}), facts.Started(A, 1))
    ledger.fold(5.0, facts.Cancelled(A))
    ledger.release_ended(lambda _: True)
    assert (A in ledger.jobs.leaving, ledger.jobs.forget([A])) == (True, [])

    ledger.fold(6.0, facts.Stopped(A, 1))
    ledger.release_ended(lambda _: False)

    assert [*ledger.jobs.done] == [A]
    assert ledger.promised() == {}
    assert ledger.jobs.forget([A]) == [A]
    assert len(ledger.jobs) == 0


def test_a_start_that_was_never_asked_for_keeps_nobody_in_memory() -> None:
    """Promised while its devices were busy, then cancelled: no engine ever answers that start."""
    ledger = Ledger()
    fold(ledger, facts.Submitted(Job(A)), facts.Decided(1, {A: ON}), facts.Cancelled(A))
    assert ledger.promised() == {(A, 1): ON}

    ledger.release_ended(lambda _: False)

    assert ledger.promised() == {}
    assert [*ledger.jobs.done] == [A]


LATE: tuple[facts.Event, ...] = (
    facts.Started(A, 1),
    facts.Reported(A, 1, Report(steps=3)),
    facts.Saved(A, 1, 7),
    facts.Noticed(A, 1, "info", "well"),
    facts.Stopped(A, 1),
    facts.Finished(A, 1),
    facts.Failed(A, 1, "lost", retry=True, agent_died=True),
    facts.StartFailed(A, 1, "late"),
    facts.Cancelled(A),
    facts.DeadlineMissed(A),
    facts.Suspended(A, "me", Rung.RESTART),
    facts.PriorityChanged(A, 3.0, Tier.GUARANTEED),
    facts.Decided(2, {}, reasons={A: "waits"}),
    facts.PolicyChanged(PartSpec("srsf")),
    facts.NodeDown(NodeId("n")),
    facts.Slept(A, 1, Rung.FREEZE),
    facts.Awoke(A, 1),
    facts.Resized(A, 1, 1),
    facts.ResizeFailed(A, 1, 1, "no"),
)


@pytest.mark.parametrize("late", LATE, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    "end", [facts.Cancelled(A), facts.Finished(A, 1)], ids=lambda e: type(e).__name__
)
def test_late_news_changes_no_record_that_the_store_may_have(
    end: facts.Event, late: facts.Event
) -> None:
    """Whether the store has it yet is chance, so what the log says must not depend on that."""
    ledger = Ledger()
    fold(
        ledger,
        facts.Submitted(Job(A)),
        facts.Decided(1, {}, reasons={A: "no room"}),
        facts.Decided(2, {A: ON}),
    )
    ledger.fold(5.0, facts.Decided(3, {}, reasons={A: "close to its end"}))
    ledger.fold(9.0, end)
    ledger.release_ended(lambda _: False)
    before, used = ledger.jobs[A], ledger.used(20.0)

    ledger.fold(10.0, late)

    assert (ledger.jobs[A], ledger.used(20.0)) == (before, used)
    assert before.said


def test_news_of_a_job_that_has_left_changes_nothing() -> None:
    ledger = Ledger()
    fold(ledger, facts.Submitted(Job(A)), facts.Decided(1, {A: ON}), facts.Started(A, 1))
    ledger.fold(9.0, facts.Finished(A, 1))
    ledger.release_ended(lambda _: False)
    rows = [row_of(ledger.jobs.live[A])]
    ledger.jobs.ended.put(rows)
    ledger.jobs.drop_stored(rows)

    ledger.fold(10.0, facts.Stopped(A, 1))
    ledger.fold(11.0, facts.Cancelled(A))

    assert ledger.jobs[A].outcome == "succeeded"
    assert ledger.used(20.0)[""].gpu_s == pytest.approx(7.0)
