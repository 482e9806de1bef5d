"""A standby takes over from a leader that is stopped, killed or told to end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.takeover import rounds

from weft.core.errors import Superseded
from weft.core.events.event import Woken
from weft.store import lease
from weft.store.sqlite import SqliteStore


def test_no_job_is_lost_or_runs_twice_when_the_leader_goes(tmp_path: Path) -> None:
    took = rounds(tmp_path, 3, seed=1)

    assert set(took) == {"stop", "kill", "end"}


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
    store.beat()
    seen = lease.read(path)

    assert lease.take_from(path, seen)

    for write in (lambda: store.append([(2.0, Woken())]), store.beat, lambda: store.save(1, b"x")):
        with pytest.raises(Superseded, match="taken over"):
            write()
    assert store.last() == 1
    store.close()


def test_a_leader_that_moved_meanwhile_keeps_its_token(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    store = SqliteStore(path, "me")
    seen = lease.read(path)
    store.beat()

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
