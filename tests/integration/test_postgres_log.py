"""The log in a real PostgreSQL: the same as in a file, and only one who writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from benchmarks.takeover import rounds

from tests.postgres_server import running_server
from tests.seeds import seeds
from tests.waiting import wait_until
from weft.app.state.upkeep import downgrade_log
from weft.core.errors import InvalidConfig, StoreError, Superseded
from weft.core.events.event import Cancelled, Decided, Event, Foretold, Started, Submitted, Woken
from weft.core.model.job import Job, JobId
from weft.core.state.ended_jobs import EndedFilter, EndedJob
from weft.store.sqlite import SqliteStore

NAMES = ["a", "B", "vision:net", "é\u6f22", "100%", "it's", 'quo"te', "back\\slash", "a?b", ":c"]
JOBS = [JobId(name) for name in NAMES]


@pytest.fixture(scope="module")
def database() -> Iterator[Callable[[], str]]:
    with running_server() as make:
        yield make


def events_of(rng: random.Random) -> list[tuple[float, Event]]:
    drawn: list[tuple[float, Event]] = []
    for _ in range(rng.randrange(4)):
        job, at = rng.choice(JOBS), rng.randrange(100) / 7
        other = rng.choice(JOBS)
        kinds: list[Event] = [Submitted(Job(job)), Started(job, 1), Cancelled(job), Woken()]
        drawn.append((at, rng.choice([*kinds, Decided(1, {job: None}, reasons={other: "waits"})])))
    return drawn


def ended_of(rng: random.Random) -> list[EndedJob]:
    return [
        EndedJob(
            rng.randrange(12),
            rng.choice(JOBS),
            rng.choice(["", "vision"]),
            rng.choice(["ann", "bob"]),
            rng.choice(NAMES),
            rng.choice(["", "app1", "app2"]),
            rng.choice(["succeeded", "failed"]),
            float(rng.randrange(9)),
            float(rng.randrange(9)),
            rng.randbytes(5),
        )
        for _ in range(rng.randrange(3))
    ]


def draw(rng: random.Random) -> Callable[[Any], Any]:
    """Something to do to a store, the same to each."""
    seq, job, limit = rng.randrange(12), rng.choice(JOBS), rng.randrange(1, 6)
    tenant, user = rng.choice([None, "", "vision"]), rng.choice([None, "ann"])
    events, ended, data = events_of(rng), ended_of(rng), rng.randbytes(4)
    return rng.choice(
        [
            lambda store: store.append(events),
            lambda store: store.append(events),
            lambda store: store.since(seq, limit),
            lambda store: (
                store.since(0),
                store.last_seq(),
                store.missing(),
                store.unreadable_rows(),
            ),
            lambda store: store.set_aside(seq, "not ours"),
            lambda store: (store.about_job(job, limit), store.about_job(job, limit, until=8.0)),
            lambda store: store.about_job(job, limit, without=(Started, Submitted)),
            lambda store: (store.save(seq, data), store.latest_snapshot()),
            lambda store: (
                store.keep_base(seq, 1.5, data),
                store.list_bases(),
                store.latest_base(),
            ),
            lambda store: store.compact(seq),
            lambda store: store.ended.put(ended),
            lambda store: store.ended.put(ended),
            lambda store: store.ended.reset(seq, [job]),
            lambda store: store.ended.remove([job]),
            lambda store: (store.ended.get(job), dict(store.ended.counts())),
            lambda store: store.ended.page(seq - 1, limit, EndedFilter(tenant, "failed")),
            lambda store: (
                store.ended.page(-1, 99),
                store.ended.page(-1, 9, EndedFilter(app="app1")),
            ),
            lambda store: (store.ended.oldest(None), store.ended.oldest(limit)),
            lambda store: store.ended.find_by_name(str(job), limit, tenant=tenant),
            lambda store: store.ended.find_by_prefix(str(job)[:1], limit, tenant=tenant),
            lambda store: store.ended.app_names("app", limit, tenant=tenant),
            lambda store: store.ended.latest(limit, tenant=tenant, user=user),
            lambda store: (
                store.ended.first_since(seq / 2),
                store.ended.ended_since(seq / 2, "failed", limit),
            ),
        ]
    )


def answer(store: Any, question: Callable[[Any], Any]) -> object:
    try:
        return question(store)
    except InvalidConfig as error:
        return str(error)


@pytest.mark.parametrize("seed", seeds(4))
def test_it_answers_as_the_file_does(
    database: Callable[[], str], tmp_path: Path, seed: int
) -> None:
    from weft.store.postgres import PostgresStore

    rng, address, path = random.Random(seed), database(), tmp_path / "events.db"
    ours, theirs = SqliteStore(path), PostgresStore(address)
    for number in range(200):
        if rng.random() < 0.02:  # a service that begins anew
            ours.close()
            theirs.close()
            ours, theirs = SqliteStore(path), PostgresStore(address)
        question = draw(rng)

        expected, answered = answer(ours, question), answer(theirs, question)

        assert answered == expected, f"question {number}"
    ours.close()
    theirs.close()


def test_one_service_at_a_time_owns_it(database: Callable[[], str]) -> None:
    from weft.store.postgres import PostgresStore

    address = database()
    first = PostgresStore(address)

    with pytest.raises(InvalidConfig, match="in use by another service"):
        PostgresStore(address)

    first.append([(1.0, Woken())])
    first.close()
    second = PostgresStore(address)
    assert second.last_seq() == 1
    second.close()


def test_a_session_that_breaks_is_opened_again(database: Callable[[], str]) -> None:
    from weft.store.postgres import PostgresSession, PostgresStore

    store = PostgresStore(address := database())
    store.append([(1.0, Woken())])
    admin = PostgresSession(address)
    everybody = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
    everybody += "current_database() AND pid <> pg_backend_pid()"
    admin.execute(everybody)

    with pytest.raises(StoreError, match="does not answer"):
        store.append([(2.0, Woken())])
    store.append([(2.0, Woken())])
    store.renew_lease()

    assert [seq for seq, _, _ in store.since(0)] == [1, 2]
    assert store.missing() == []
    store.close()
    admin.close()


def test_whoever_lost_the_token_writes_nothing_more(database: Callable[[], str]) -> None:
    from weft.store.postgres import PostgresPlace, PostgresStore

    store = PostgresStore(address := database(), "me")
    store.append([(1.0, Woken())])
    store.renew_lease()
    standby = PostgresPlace(address)
    assert standby.is_first()
    assert not standby.is_free()

    assert standby.take_from(standby.read())

    for write in (
        lambda: store.append([(2.0, Woken())]),
        store.renew_lease,
        lambda: store.save(1, b"x"),
    ):
        with pytest.raises(StoreError):
            write()
    wait_until(standby.is_free)  # the server ends sessions in its own time
    new = PostgresStore(address, "you")
    for write in (lambda: store.append([(2.0, Woken())]), store.renew_lease):
        with pytest.raises(Superseded, match="taken over"):
            write()
    assert new.last_seq() == 1
    assert new.append([(3.0, Woken())]) == 2
    store.close()
    new.close()
    standby.close()


def test_a_leader_that_moved_meanwhile_keeps_its_place(database: Callable[[], str]) -> None:
    from weft.store.postgres import PostgresPlace, PostgresStore

    store = PostgresStore(address := database(), "me")
    standby = PostgresPlace(address)
    seen = standby.read()
    store.renew_lease()

    assert not standby.take_from(seen)

    assert store.append([(1.0, Woken())]) == 1
    store.close()
    standby.close()


@pytest.mark.slow
def test_no_job_is_lost_or_runs_twice_when_a_leader_goes(
    database: Callable[[], str], tmp_path: Path
) -> None:
    took = rounds(tmp_path, 6, seed=3, database=database())

    assert set(took) == {"stop", "kill", "end", "clock", "pause", "cut"}


@pytest.mark.slow
def test_nor_when_it_cannot_be_ended_and_goes_on_later(
    database: Callable[[], str], tmp_path: Path
) -> None:
    took = rounds(tmp_path, 6, seed=4, database=database(), machines=True)

    assert sum(map(len, took.values())) == 6


def test_a_leader_stuck_in_a_transaction_is_undone(database: Callable[[], str]) -> None:
    from weft.store.postgres import PostgresPlace, PostgresStore

    store = PostgresStore(address := database(), "me")
    store.renew_lease()
    standby = PostgresPlace(address)
    store._begin()
    store._insert([(1.0, '{"event": "Woken"}')])

    assert standby.take_from(standby.read())  # before anybody finds the lock free

    new = PostgresStore(address, "you")
    assert new.last_seq() == 0
    assert new.since(0) == []
    new.close()
    store.close()
    standby.close()


STUCK = """
import os, signal, sys
from weft.app.serve.standby import describe_process
from weft.store.postgres import PostgresStore
store = PostgresStore(sys.argv[1], describe_process())
store.renew_lease()
store._begin()
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_leader_stopped_inside_a_transaction_is_gone_when_the_standby_leads(
    database: Callable[[], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from weft.app.serve import standby

    monkeypatch.setattr(standby, "STALE_S", 0.5)
    leader = subprocess.Popen([sys.executable, "-c", STUCK, address := database()])
    _, status = os.waitpid(leader.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    waiting = standby.Standby(standby.open_place(tmp_path, address))

    waiting.wait()

    assert leader.poll() == -signal.SIGKILL
    waiting.release()


def test_a_log_in_a_database_goes_back_to_an_earlier_format_and_forth(
    database: Callable[[], str], tmp_path: Path
) -> None:
    from weft.store.postgres import PostgresStore

    address = database()
    store = PostgresStore(address)
    store.append([(1.0, Submitted(Job(JobId("a")))), (2.0, Foretold(JobId("a"), 1.0, 2.0, 3.0))])
    rows = store.since(0)
    store.close()

    version, lacks = downgrade_log(tmp_path, address, "0.2.0")

    assert version == "0.2.0" and [*lacks.values()] == [1]
    with psycopg.connect(address) as session:
        assert session.execute("SELECT version FROM log_format").fetchall() == [(1,)]
        kinds = session.execute("SELECT kind FROM events ORDER BY seq").fetchall()
    assert kinds == [("Submitted",), ("Woken",)]
    back = PostgresStore(address)
    assert back.since(0) == rows
    back.close()
    with psycopg.connect(address) as session:
        session.execute("UPDATE log_format SET version = 99")
    with pytest.raises(InvalidConfig, match=r"newer version.*99"):
        PostgresStore(address)
