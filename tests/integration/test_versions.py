"""Upgrades and rollbacks: no version misreads a log or loses a job that another one accepted.

`states/histories/0.2.0-*.tar.gz` are of services of 0.2.0 that lived through random histories of
200 events and then ended or were killed; `accepted.json` in them names the jobs and their states.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.integration.serving import get, serving, submit
from tests.integration.versions import (
    EVENTS,
    RELEASES,
    Service,
    extract,
    lines_of,
    live_through,
    unpack,
)
from tests.seeds import seeds
from weft.app.state.upkeep import downgrade_log
from weft.core.codec.log_schema import FORMAT, find_unknown
from weft.core.errors import InvalidConfig
from weft.store.sqlite import SqliteStore

STATES = Path(__file__).parent / "states" / "histories"
RECORDED = sorted(STATES.glob("0.2.0-*.tar.gz"))
ENGINE = "simulated:cluster=2x4:a100,speed=60"
OVER = {"succeeded", "failed", "cancelled"}


def format_of(state: Path) -> int:
    with closing(sqlite3.connect(state / "events.db")) as db:
        (number,) = db.execute("PRAGMA user_version").fetchone()
    return int(number)


def check_kept(before: dict[str, str], after: dict[str, str]) -> None:
    """Every job is there, and what was over stays as it ended."""
    assert before.keys() <= after.keys()
    assert {job: after[job] for job, was in before.items() if was in OVER} == {
        job: was for job, was in before.items() if was in OVER
    }


def serve_here(state: Path, *new: str) -> dict[str, str]:
    """What a service of this version knows in `state`, with some new jobs."""
    with serving(ENGINE, state=state) as client:
        for name in new:
            submit(client, id=name, gpus=1, log_mb=16)
        jobs = get(client, "/jobs", limit=1000)["jobs"]
    return {job["id"]: job["state"] for job in jobs}


@pytest.fixture(params=RECORDED, ids=lambda path: path.name.removesuffix(".tar.gz"))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with request.param.open("rb") as packed:
        extract(packed, tmp_path)
    return tmp_path


def test_a_recorded_history_is_gone_on_with_and_back_again(recorded: Path) -> None:
    accepted: dict[str, str] = json.loads((recorded / "accepted.json").read_text())
    assert format_of(recorded) < FORMAT and len(lines_of(recorded)) >= EVENTS

    here = serve_here(recorded, "new")
    check_kept(accepted, here)
    assert format_of(recorded) == FORMAT, "an earlier version refuses a number above its own"

    lines = lines_of(recorded)
    version, lacks = downgrade_log(recorded, "", "0.2.0")

    assert version == "0.2.0" and lacks
    assert format_of(recorded) == 4 and len(lines_of(recorded)) == len(lines)
    assert not [line for line in lines_of(recorded) if find_unknown(json.loads(line), 4)]

    check_kept(here, serve_here(recorded))
    assert lines_of(recorded)[: len(lines)] == lines, "an upgrade puts the lines back"


def test_jobs_that_an_earlier_version_could_not_read_wait_again(recorded: Path) -> None:
    serve_here(recorded, "lost", "over")
    with closing(sqlite3.connect(recorded / "events.db")) as db:  # as 0.2.0 did to a newer log
        named = """ json LIKE '%"lost"%' OR json LIKE '%"over"%'"""
        ended = '{"at":2e9,"event":"Finished","job":"over","attempt":1}'
        db.execute("INSERT INTO events (at, json) VALUES (2e9, ?)", (ended,))
        db.execute(
            "INSERT INTO set_aside SELECT seq, json, CASE WHEN json LIKE '%Submitted%' "
            "THEN 'it cannot be read: TypeError' ELSE 'it does not follow' END "
            f"FROM events WHERE {named}"
        )
        db.execute(f"DELETE FROM events WHERE {named}")
        db.execute("DELETE FROM snapshots")
        db.execute("PRAGMA user_version=4")
        db.commit()

    jobs = serve_here(recorded)

    assert "lost" in jobs
    assert "over" not in jobs


def test_a_log_with_what_only_a_newer_version_knows_is_left_as_it_is(recorded: Path) -> None:
    SqliteStore(recorded / "events.db").close()
    with closing(sqlite3.connect(recorded / "events.db")) as db:
        db.execute("UPDATE events SET json = json_set(json, '$.magic', 1) WHERE seq = 150")
        db.commit()
    lines = lines_of(recorded)

    store = SqliteStore(recorded / "events.db")
    with pytest.raises(InvalidConfig, match=r"event 150 .*newer version.*magic"):
        store.since(0)
    store.close()

    assert lines_of(recorded) == lines
    with pytest.raises(InvalidConfig, match=r"says .*magic"):
        downgrade_log(recorded, "", "4")
    assert lines_of(recorded) == lines and format_of(recorded) == FORMAT


def test_a_downgrade_names_the_versions_it_can_go_to(recorded: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"weft 9\.9\s.*0\.2\.0 \(log format 4\)"):
        downgrade_log(recorded, "", "9.9")


@pytest.fixture(scope="module", params=RELEASES)
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = unpack(request.param, tmp_path_factory.mktemp("release"))
    if sources is None:
        pytest.skip("needs the whole history: git fetch --unshallow")
    return sources


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("seed", seeds(2))
def test_back_and_forth_between_versions(
    sources: Path, tmp_path: Path, seed: int, kill: bool
) -> None:
    random = Random(seed)
    old = Service(tmp_path, sources)
    accepted = live_through(old, random, "old")
    states = old.states()
    assert accepted == states.keys()
    old.end(kill=kill)

    new = Service(tmp_path)
    check_kept(states, new.states())
    accepted |= live_through(new, random, "new", len(new.events()) + EVENTS)
    states = new.states()
    new.end(kill=kill)

    lines = lines_of(tmp_path)
    assert "newer version" in Service(tmp_path, sources).refusal()
    assert lines_of(tmp_path) == lines

    downgrade_log(tmp_path, "", "0.2.0")
    old = Service(tmp_path, sources)
    check_kept(states, old.states())
    accepted |= live_through(old, random, "again", len(old.events()) + EVENTS)
    states = old.states()
    with closing(sqlite3.connect(tmp_path / "events.db")) as db:
        assert db.execute("SELECT * FROM set_aside").fetchall() == []
    old.end(kill=kill)

    new = Service(tmp_path)
    check_kept(states, new.states())
    assert accepted <= new.states().keys()
    assert lines_of(tmp_path)[: len(lines)] == lines
    new.end()
