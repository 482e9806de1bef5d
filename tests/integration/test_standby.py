"""A standby takes over from a leader that is stopped, killed or told to end."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.takeover import rounds

from tests.waiting import LIMIT_S, until, wait_until
from weft.core.errors import Superseded
from weft.core.events.event import Woken
from weft.runtime.loop.leading import Leading
from weft.store import lease
from weft.store.memory import MemoryStore
from weft.store.sqlite import SqliteStore


def test_no_job_is_lost_or_runs_twice_when_the_leader_goes(tmp_path: Path) -> None:
    took = rounds(tmp_path, 1, seed=1, faults=("kill",))

    assert set(took) == {"kill"}


@pytest.mark.slow
def test_nor_when_it_is_cut_off_and_its_clock_moves(tmp_path: Path) -> None:
    took = rounds(tmp_path, 6, seed=3)

    assert set(took) == {"stop", "kill", "end", "clock", "pause", "cut"}


@pytest.mark.slow
def test_nor_in_twenty_rounds_with_moved_clocks(tmp_path: Path) -> None:
    took = rounds(tmp_path, 20, seed=2)

    assert sum(map(len, took.values())) == 20


def test_whoever_lost_the_token_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = SqliteStore(path, "me")
    store.append([(1.0, Woken())])
    store.renew_lease()
    seen = lease.read(path)

    assert lease.take_from(path, seen)

    for write in (
        lambda: store.append([(2.0, Woken())]),
        store.renew_lease,
        lambda: store.save(1, b"x"),
    ):
        with pytest.raises(Superseded, match="taken over"):
            write()
    assert store.last_seq() == 1
    store.close()


def test_a_leader_that_moved_meanwhile_keeps_its_token(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = SqliteStore(path, "me")
    seen = lease.read(path)
    store.renew_lease()

    assert not lease.take_from(path, seen)

    assert store.append([(1.0, Woken())]) == 1
    store.close()


def test_a_log_that_is_just_being_made_has_no_leader_yet(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(lease.TABLE.partition(";")[0])  # its row comes next

    assert lease.read(path) == lease.Lease()


def test_each_owner_has_a_higher_token(tmp_path: Path) -> None:
    tokens = []
    for name in ("first", "second"):
        store = SqliteStore(tmp_path / "events.db", name)
        tokens.append(lease.read(tmp_path / "events.db"))
        store.close()

    assert tokens[0].token < tokens[1].token
    assert [token.holder for token in tokens] == ["first", "second"]


class CountedStore(MemoryStore):
    """Counts heartbeats; another service takes its lease when `taken` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.beats, self.taken = 0, threading.Event()

    def renew_lease(self) -> None:
        if self.taken.is_set():
            raise Superseded("another service has taken over")
        self.beats += 1


def test_a_busy_loop_does_not_keep_the_lease_from_being_renewed() -> None:
    store = CountedStore()

    async def lead() -> None:
        leading = Leading(store, lambda _: None, beat_s=0.01)
        leading.open()
        before = store.beats
        wait_until(lambda: store.beats > before + 5)  # the loop does nothing else meanwhile
        await leading.close()

    asyncio.run(lead())


def test_a_loop_that_hangs_for_long_does_not_keep_the_lease() -> None:
    store = CountedStore()

    async def lead() -> None:
        leading = Leading(store, lambda _: None, beat_s=0.01, hangs_s=0.2)
        leading.open()
        await until(lambda: store.beats)
        wait_until(lambda: leading.unrenewed_s > 0.5)  # a hundred beats were due
        hanging = store.beats
        await until(lambda: store.beats > hanging)
        await leading.close()

    asyncio.run(lead())


def test_a_leader_whose_lease_is_taken_is_told_by_its_loop() -> None:
    store, errors = CountedStore(), list[BaseException | None]()

    async def lead() -> None:
        leading = Leading(store, lambda task: errors.append(task.exception()), beat_s=0.01)
        leading.open()
        store.taken.set()
        async with asyncio.timeout(LIMIT_S):
            await until(lambda: errors)
        await leading.close()

    asyncio.run(lead())

    assert isinstance(errors[0], Superseded)
