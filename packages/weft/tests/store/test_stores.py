"""Both stores: what was appended is what is read, in order, for good."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.core.errors import InvalidConfig, WeftError
from weft.core.events.event import Cancelled, Decided, Event, Measured, Reported, Started, Submitted
from weft.core.model.job import Job, JobId
from weft.core.model.launch import Launch
from weft.core.protocols import Store
from weft.store.memory import MemoryStore
from weft.store.sql_log import IN_SQLITE
from weft.store.sqlite import SqliteStore

MAKERS: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "events.db"),
}
A = JobId("a")
EVENTS: list[tuple[float, Event]] = [
    (1.5, Submitted(Job(A, launch=Launch(("python", "x.py"), env={"K": "v\n"})))),
    (2.5, Started(A, 1)),
    (3.5, Cancelled(A)),
]


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    made = MAKERS[request.param](tmp_path)
    yield made
    made.close()


def test_what_was_appended_is_read_back_with_its_numbers(store: Store) -> None:
    assert store.append(EVENTS[:2]) == 2
    assert store.append(EVENTS[2:]) == 3

    assert store.since(0) == [(i, at, e) for i, (at, e) in enumerate(EVENTS, start=1)]
    assert store.since(2) == [(3, *EVENTS[2])]
    assert store.since(0, limit=1) == [(1, *EVENTS[0])]
    assert store.since(3) == []


def test_the_newest_snapshot_is_the_one_that_is_given(store: Store) -> None:
    assert store.latest_snapshot() is None

    for seq in (3, 7, 9):
        store.save(seq, b"state %d" % seq)

    assert store.latest_snapshot() == (9, b"state 9")


def test_appending_nothing_changes_nothing(store: Store) -> None:
    store.append(EVENTS)

    assert store.append([]) == 3


def test_another_process_finds_everything(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "events.db")
    first.append(EVENTS)
    first.close()

    second = SqliteStore(tmp_path / "events.db")

    assert [(at, e) for _, at, e in second.since(0)] == EVENTS
    second.close()


def test_one_process_at_a_time_owns_the_log(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "events.db")

    with pytest.raises(InvalidConfig, match="in use by another process"):
        SqliteStore(tmp_path / "events.db")

    first.close()
    SqliteStore(tmp_path / "events.db").close()


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"this is not a database, it is a poem" * 100)

    with pytest.raises(InvalidConfig, match="cannot be read as an event log"):
        SqliteStore(tmp_path / "events.db")


def test_a_log_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "events.db").close()
    with sqlite3.connect(tmp_path / "events.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()

    with pytest.raises(InvalidConfig, match="newer version"):
        SqliteStore(tmp_path / "events.db")


def test_a_batch_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "events.db")
    store.append(EVENTS[:1])
    store._db.execute("CREATE TRIGGER no BEFORE INSERT ON events WHEN new.at > 3 "
                      "BEGIN SELECT raise(ABORT, 'disk full'); END")  # fmt: skip

    with pytest.raises(WeftError, match="2 events could not be written"):
        store.append(EVENTS[1:])

    assert len(store.since(0)) == 1
    store.close()


def test_events_of_one_job_are_found_among_those_of_others(store: Store) -> None:
    b = JobId('b"\u00e9')
    store.append([*EVENTS, (4.0, Submitted(Job(b))), (5.0, Started(b, 1))])
    store.append([(6.0, Decided(1, {A: None})), (7.0, Decided(2, reasons={b: "waits for a"}))])

    assert [seq for seq, _, _ in store.about_job(b, 10)] == [4, 5, 7]
    assert [seq for seq, _, _ in store.about_job(A, 2)] == [3, 6]
    assert store.about_job(JobId("waits for a"), 10) == []


def test_many_reports_of_a_job_do_not_crowd_out_the_rest(store: Store) -> None:
    measured = [(4.0 + i, Measured(A, 1, 4.0 + i, ("loss",), (i,), (0.5,))) for i in range(9)]
    store.append([(1.0, Submitted(Job(A))), (3.0, Reported(A, 1)), *measured])

    events = store.about_job(A, 2, without=(Reported, Measured))

    assert [type(event).__name__ for _, _, event in events] == ["Submitted"]
    assert len(store.about_job(A, 2)) == 2


def test_events_of_a_job_are_found_by_an_index(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "events.db")
    jobs = [JobId(f"j{i}") for i in range(200)]
    store.append([(float(i), Submitted(Job(job))) for i, job in enumerate(jobs)])
    store.append([(200.0 + i, Decided(i, {job: None})) for i, job in enumerate(jobs)])
    store.append([(500.0 + i, Started(job, 1)) for i, job in enumerate(jobs)])

    events = store.about_job(jobs[77], 10)
    asked = {"job": "j77", "limit": 10}
    plan = store._db.execute(f"EXPLAIN QUERY PLAN {IN_SQLITE.of_job()}", asked).fetchall()
    store.close()

    assert [type(event).__name__ for _, _, event in events] == ["Submitted", "Decided", "Started"]
    assert "USING INDEX events_of_job" in str(plan)


def test_what_came_after_a_job_had_ended_is_not_searched(store: Store) -> None:
    store.append([(1.0, Submitted(Job(A))), (2.0, Cancelled(A)), (9.0, Decided(1, {A: None}))])

    assert len(store.about_job(A, 10, until=2.0)) == 2
    assert len(store.about_job(A, 10)) == 3


def test_a_log_of_before_the_index_gets_one(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "events.db")
    store.append(EVENTS)
    for index in ("events_of_job", "decisions", "events_at"):
        store._db.execute(f"DROP INDEX {index}")
    store.close()

    again = SqliteStore(tmp_path / "events.db")

    assert len(again.about_job(A, 10)) == 3
    again.close()
