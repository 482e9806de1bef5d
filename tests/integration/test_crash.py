"""Every fault at random moments: nothing is lost, nothing runs twice, the accounts agree."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.crash_soak import Soak, soak


def test_nothing_is_lost_doubled_or_left_behind_whatever_happens(tmp_path: Path) -> None:
    seen = soak(tmp_path / "soak", faults=6, seed=3, pause_s=0.3, longest=10)

    assert sum(seen["faults"].values()) == 6
    assert seen["accepted"] >= 3
    assert seen["starts"] > 0
    assert seen["decisions"] > 0
    assert seen["values compared"] > 0


def test_the_log_that_is_kept_of_a_service_that_died_has_what_its_wal_had(tmp_path: Path) -> None:
    it = Soak(tmp_path, random.Random(0))
    it.state.mkdir()
    with closing(sqlite3.connect(it.state / "events.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE events (seq INTEGER)")
        db.execute("INSERT INTO events VALUES (7)")
        db.commit()
        it.keep_log()  # nobody has written the WAL back

    with closing(sqlite3.connect(tmp_path / "events.db")) as kept:
        assert kept.execute("SELECT seq FROM events").fetchall() == [(7,)]
