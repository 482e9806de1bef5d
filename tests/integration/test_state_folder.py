"""The state folder: closed to others, never begun anew beside jobs, copied and checked."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
from pathlib import Path

import pytest

from weft.app.serve.live import Live, Settings
from weft.app.serve.standby import FilePlace
from weft.app.state.folder import make_private, open_to_others
from weft.app.state.upkeep import (
    StateFinding,
    accept_loss,
    check_state,
    make_backup,
    restore_backup,
)
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Job, JobId
from weft.engines.local import LocalEngine
from weft.engines.machine.users import let_through

ENGINE = "simulated:cluster=1x4:a100,speed=3600"


def live(state: Path) -> Live:
    return Live(Settings(engine=ENGINE, state=state))


def run_jobs(state: Path, *names: str) -> None:
    """A service in `state` that runs these jobs to their end."""

    async def go() -> None:
        service = live(state)
        await service.open()
        for name in names:
            job = Job(JobId(name), demand=Demand(1), hints={"duration_s": 10.0})
            await service.driver.submit(job)
        for name in names:
            await service.driver.ended(JobId(name))
        await service.close()

    asyncio.run(go())
    for name in names:
        (state / "jobs" / name / "1").mkdir(parents=True)  # the simulated engine makes none


def start(state: Path) -> list[str]:
    """The jobs that a service in `state` knows."""

    async def go() -> list[str]:
        service = live(state)
        await service.open()
        names = [str(name) for name in service.driver.ledger.jobs]
        await service.close()
        return names

    return asyncio.run(go())


def change(state: Path, *statements: str) -> None:
    db = sqlite3.connect(state / "events.db")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def errors(findings: list[StateFinding]) -> list[str]:
    return [finding.what for finding in findings if finding.level == "error"]


# ---- a log that is gone


def test_a_deleted_log_beside_jobs_is_not_begun_anew(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a", "b")
    (tmp_path / "events.db").unlink()

    with pytest.raises(InvalidConfig, match=r"missing, but .*jobs holds 2 jobs") as refused:
        start(tmp_path)

    assert "weft state restore" in refused.value.hint
    assert errors(check_state(tmp_path))


def test_an_emptied_log_beside_jobs_is_not_begun_anew(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a")
    (tmp_path / "events.db").write_bytes(b"")

    with pytest.raises(InvalidConfig, match=r"empty, but .*jobs holds 1 job"):
        start(tmp_path)


def test_a_log_without_any_event_beside_jobs_is_not_begun_anew(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a")
    change(tmp_path, "DELETE FROM events", "DELETE FROM snapshots", "DELETE FROM sqlite_sequence")

    with pytest.raises(InvalidConfig, match="no events, but"):
        start(tmp_path)


def test_the_hint_for_a_damaged_log_does_not_lead_to_a_new_one(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a")
    log = tmp_path / "events.db"
    log.write_bytes(b"\0" * 100 + log.read_bytes()[100:])

    with pytest.raises(InvalidConfig, match="cannot be read as an event log") as refused:
        start(tmp_path)
    assert "move" not in refused.value.hint
    log.rename(tmp_path / "away")
    with pytest.raises(InvalidConfig, match="missing, but"):
        start(tmp_path)


# ---- rows that are gone or cannot be read


@pytest.mark.parametrize("which", ["seq = 4", "seq > 8"])
def test_rows_missing_in_the_log_are_noticed(tmp_path: Path, which: str) -> None:
    run_jobs(tmp_path, "a", "b")
    change(tmp_path, f"DELETE FROM events WHERE {which}", "DELETE FROM snapshots")

    with pytest.raises(InvalidConfig, match="the log lacks event"):
        start(tmp_path)
    assert any("lacks events" in what for what in errors(check_state(tmp_path)))


def test_a_loss_that_was_accepted_is_gone_on_from(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a", "b")
    change(
        tmp_path,
        "DELETE FROM events WHERE json LIKE '%Submitted%' AND json LIKE '%\"b\"%'",
        "DELETE FROM snapshots",
    )

    assert len(accept_loss(tmp_path)) == 1

    assert start(tmp_path) == ["a"]
    assert not errors(check_state(tmp_path))


@pytest.mark.parametrize(
    "poison",
    [
        '{"at":1.0,"event":"Saved","job":"a","attempt":1,"step":"x"}',
        '{"at":1.0,"event":"Saved","job":"a","attempt":1,"step":1e400}',
        '{"at":1.0,"event":"Finished"}',
        '{"at":"x","event":"Woken"}',
        '["no object"]',
        "not JSON",
    ],
)
def test_a_poisoned_row_is_set_aside_and_all_others_are_read(tmp_path: Path, poison: str) -> None:
    run_jobs(tmp_path, "a", "b")
    db = sqlite3.connect(tmp_path / "events.db")
    db.execute("UPDATE events SET json = ? WHERE json LIKE '%Woken%' OR seq = 2", (poison,))
    db.execute("DELETE FROM snapshots")
    db.commit()
    db.close()

    assert start(tmp_path) == ["a", "b"]

    kept = sqlite3.connect(tmp_path / "events.db")
    aside = kept.execute("SELECT seq, json, why FROM set_aside").fetchall()
    kept.close()
    assert [(seq, line) for seq, line, _ in aside][:1] == [(2, poison)]
    assert not errors(check_state(tmp_path))
    assert any("set aside" in finding.what for finding in check_state(tmp_path))


def test_a_row_that_does_not_follow_from_what_was_before_is_set_aside(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a")
    change(
        tmp_path,
        "DELETE FROM snapshots",
        "INSERT INTO events (at, json) SELECT at, json FROM events WHERE json LIKE '%Submitted%'",
        "INSERT INTO events (at, json) VALUES "
        '(2e9, \'{"at":2e9,"event":"Decided","number":9,"changes":{"ghost":null}}\')',
    )

    assert start(tmp_path) == ["a"]


# ---- who may read


def test_the_folder_and_its_files_are_closed_to_others_also_where_they_were_open(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    run_jobs(state, "a")
    (state / "tokens.json").write_text("{}")
    for path in (state, state / "events.db", state / "tokens.json", state / "jobs"):
        path.chmod(0o755)
    assert len(open_to_others(state)) == 4

    start(state)

    assert not open_to_others(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "events.db").stat().st_mode) == 0o600


def test_a_file_that_goes_away_while_the_folder_is_closed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("events.db", "events.db-wal", "tokens.json"):
        (tmp_path / name).touch(0o644)
    change = Path.chmod

    def chmod(path: Path, mode: int) -> None:
        (tmp_path / "events.db-wal").unlink(missing_ok=True)  # as the leader that ends does
        change(path, mode)

    monkeypatch.setattr(Path, "chmod", chmod)

    make_private(tmp_path)

    assert open_to_others(tmp_path) == []
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["events.db", "tokens.json"]


def test_a_folder_of_other_things_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    tmp_path.chmod(0o755)

    live(tmp_path).store.close()

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "events.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("begins", ["a service", "a standby", "a restore"])
def test_users_of_jobs_are_not_shut_out_while_a_service_begins(begins: str, tmp_path: Path) -> None:
    """Their agents and ranks go on meanwhile, and open files below."""
    state, copy = tmp_path / "state", tmp_path / "copy"
    run_jobs(state, "a")
    make_backup(state, copy)
    let_through(state)
    (state / "tokens.json").touch(0o644)

    match begins:
        case "a service":
            live(state).store.close()
        case "a standby":
            FilePlace(state).close()
        case _:
            (state / "events.db").unlink()
            restore_backup(copy, state)

    assert {stat.S_IMODE(path.stat().st_mode) for path in (state, state / "jobs")} == {0o711}
    assert not open_to_others(state)


def test_without_users_no_other_user_walks_to_jobs_any_more(tmp_path: Path) -> None:
    engine = LocalEngine(state=tmp_path)
    engine._make_folders(users=True)
    engine._make_folders(users=False)

    assert stat.S_IMODE((tmp_path / "jobs").stat().st_mode) == 0o700


# ---- copies


def test_a_backup_taken_while_the_service_runs_is_brought_back(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"

    async def go() -> int:
        service = live(state)
        await service.open()
        await service.driver.submit(Job(JobId("a"), hints={"duration_s": 1e6}))
        made = await asyncio.to_thread(make_backup, state, copy)
        await service.driver.submit(Job(JobId("later"), hints={"duration_s": 1e6}))
        await service.close()
        return made.last

    last = asyncio.run(go())
    back = tmp_path / "back"
    made, files = restore_backup(copy, back)

    assert made.last == last
    assert files == ["configuration.json", "events.db"]
    assert start(back) == ["a"]
    assert not errors(check_state(back))
    assert not open_to_others(copy)


def test_a_restore_writes_over_nothing(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    run_jobs(state, "a")
    (state / "quotas.json").write_text('{"limits": {}, "weights": {}}')
    make_backup(state, copy)
    (state / "quotas.json").write_text('{"limits": {"a": 1}, "weights": {}}')

    with pytest.raises(InvalidConfig, match="nothing is written over"):
        restore_backup(copy, state)
    (state / "events.db").rename(tmp_path / "away")
    _, files = restore_backup(copy, state)

    assert files == ["events.db"]
    assert json.loads((state / "quotas.json").read_text())["limits"] == {"a": 1}
    assert start(state) == ["a"]


def test_a_backup_is_made_once_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    run_jobs(state, "a")
    make_backup(state, copy)

    with pytest.raises(InvalidConfig, match="there already"):
        make_backup(state, copy)
    data = bytearray((copy / "events.db").read_bytes())
    data[5000] ^= 1
    (copy / "events.db").write_bytes(bytes(data))
    with pytest.raises(InvalidConfig, match="has changed since the backup"):
        restore_backup(copy, tmp_path / "back")
    with pytest.raises(InvalidConfig, match="no backup"):
        restore_backup(tmp_path, tmp_path / "back")


def test_a_damaged_snapshot_is_said_and_harmless(tmp_path: Path) -> None:
    run_jobs(tmp_path, "a")
    change(tmp_path, "UPDATE snapshots SET data = CAST('rust' AS BLOB)")

    findings = check_state(tmp_path)

    assert not errors(findings)
    assert any("cannot be used" in finding.what for finding in findings)
    assert start(tmp_path) == ["a"]


def test_damage_inside_the_log_is_found(tmp_path: Path) -> None:
    run_jobs(tmp_path, *(f"job-{i}" for i in range(30)))
    log = tmp_path / "events.db"
    data = bytearray(log.read_bytes())
    data[4096 * 2 : 4096 * 4] = b"\xff" * 8192
    log.write_bytes(bytes(data))

    assert errors(check_state(tmp_path))
