"""The state folder: whether it is whole, copies of it, and what may go.

Reads only, and may be asked while the service runs.

Output and checkpoints of jobs are not part: they are large, and belong to the jobs.

A running service prunes by itself; then this only says what it would do.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from weft.app.state.folder import (
    JOBS,
    LOG,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    SETTINGS,
    job_folders,
    live_marks,
    make_private,
    open_to_others,
)
from weft.core.codec.event_lines import read_event
from weft.core.codec.log_schema import MAY_GO, WRITTEN_BY
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events.event import Submitted
from weft.core.model.job import JobId
from weft.engines.attempts.job_folders import remove_jobs, stored_bytes
from weft.frozen import frozen
from weft.runtime.records.ledger import Ledger
from weft.runtime.recovery.retention import Keep, choose_base, choose_jobs
from weft.runtime.recovery.snapshot import DamagedSnapshot, thaw
from weft.store.ended_jobs import ended_jobs
from weft.store.sql_log import BEGINS_AFTER, SqlLog
from weft.store.sqlite import SqliteStore, own
from weft.version import __version__

Level = Literal["ok", "warning", "error"]
SHOWN = 5
RESTORE = "stop the service, move it away, and bring a backup back with `weft state restore`"


@frozen
class StateFinding:
    """One thing that was looked at; `do` says what to do about it, empty where nothing."""

    level: Level
    what: str
    do: str = ""


def check_state(state: Path) -> list[StateFinding]:
    """Everything that can be said of the folder without changing it."""
    if not state.is_dir():
        return [
            StateFinding("error", f"{state} is not a folder", "name the service's with --state")
        ]
    return [*_permissions(state), *_log(state)]


def _permissions(state: Path) -> Iterator[StateFinding]:
    wide = [path.name or str(path) for path in open_to_others(state)]
    if wide:
        yield StateFinding(
            "warning",
            f"other users may use {', '.join(wide[:SHOWN])}",
            "the next start of the service closes them",
        )
    else:
        yield StateFinding("ok", "closed to other users")


def _log(state: Path) -> Iterator[StateFinding]:
    log, beside = state / LOG, len(job_folders(state))
    if not log.exists() or not log.stat().st_size:
        what = f"{log} is {'empty' if log.exists() else 'missing'}"
        if beside:
            yield StateFinding("error", f"{what}, and {JOBS} holds {beside} jobs", RESTORE)
        else:
            yield StateFinding("ok", f"{what}: nothing has been run here yet")
        return
    try:
        with closing(sqlite3.connect(f"{log.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield from _database(db)
            yield from _snapshots(db)
            yield from _beside(state, db)
    except sqlite3.DatabaseError as error:
        yield StateFinding("error", f"{log} is damaged: {error}", RESTORE)


def _database(db: sqlite3.Connection) -> Iterator[StateFinding]:
    (damage,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        yield StateFinding("error", f"the log is damaged: {damage}", RESTORE)
    count, first, end = db.execute("SELECT count(*), min(seq), max(seq) FROM events").fetchone()
    yield StateFinding("ok", f"{count} events" + (f", {first} to {end}" if count else ""))
    aside = dict(db.execute("SELECT seq, why FROM set_aside").fetchall())
    if aside:
        reasons = "; ".join(f"{seq}: {why}" for seq, why in [*aside.items()][:SHOWN])
        yield StateFinding(
            "warning",
            f"{len(aside)} events were set aside: {reasons[:500]}",
            "what they said is not known to the service; they are kept in the table set_aside",
        )
    missing = [*_find_missing(db, set(aside))]
    if missing:
        shown = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in missing[:SHOWN])
        yield StateFinding(
            "error",
            f"the log lacks events {shown}",
            f"{RESTORE}; or go on without them: `weft state accept-loss`",
        )
    bad = [*_unreadable(db)]
    if bad:
        yield StateFinding(
            "error",
            f"{len(bad)} events cannot be read: " + "; ".join(bad[:SHOWN])[:500],
            "the next start sets them aside and goes on without them",
        )


def _find_missing(db: sqlite3.Connection, aside: set[int]) -> Iterator[tuple[int, int]]:
    """Ranges of numbers that the log should have: from its base, or 1, to its last."""
    (base,) = db.execute(BEGINS_AFTER).fetchone()
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    last, expected = (int(row[0]) if row else 0), int(base) + 1
    for (seq,) in db.execute("SELECT seq FROM events WHERE seq > ? ORDER BY seq", (base,)):
        yield from _runs(expected, seq, aside)
        expected = seq + 1
    yield from _runs(expected, last + 1, aside)


def _runs(first: int, end: int, aside: set[int]) -> Iterator[tuple[int, int]]:
    """The numbers from `first` to before `end` that were not set aside, as ranges."""
    for known in sorted(seq for seq in aside if first <= seq < end):
        if known > first:
            yield first, known - 1
        first = known + 1
    if first < end:
        yield first, end - 1


def _unreadable(db: sqlite3.Connection) -> Iterator[str]:
    for seq, line in db.execute("SELECT seq, json FROM events ORDER BY seq"):
        try:
            read_event(line)
        except WeftError as error:
            yield f"{seq}: {error.what}"


def _snapshots(db: sqlite3.Connection) -> Iterator[StateFinding]:
    for table, word in (("bases", "base"), ("snapshots", "snapshot")):
        for seq, data in db.execute(f"SELECT seq, data FROM {table} ORDER BY seq"):  # noqa: S608
            try:
                jobs = len(thaw(bytes(data)).tables["records"])
            except DamagedSnapshot as error:
                needed = table == "bases"
                yield StateFinding(
                    "error" if needed else "warning",
                    f"the {word} of event {seq} cannot be used: {error.what}",
                    RESTORE if needed else "none: it is skipped, and the log is read instead",
                )
            else:
                yield StateFinding("ok", f"{word} of event {seq}, {jobs} jobs, checksum right")


def _beside(state: Path, db: sqlite3.Connection) -> Iterator[StateFinding]:
    known = {event.job.id for event in _find_submitted(db)} | ended_jobs(db).keys()
    for table in ("bases", "snapshots"):
        for (data,) in db.execute(f"SELECT data FROM {table}"):  # noqa: S608 - ours
            try:
                known |= {record.job.id for record in thaw(bytes(data)).tables["records"]}
            except DamagedSnapshot:
                continue  # told above
    strange = [
        name
        for path in job_folders(state)
        if (name := unquote(path.name)) not in known and len(path.name) < 90
    ]
    if strange:
        yield StateFinding(
            "warning",
            f"{JOBS} holds {len(strange)} jobs that the log does not know: "
            + ", ".join(strange[:SHOWN]),
            "the log is older than they are; look at them, then remove those folders by hand",
        )
    folders, marks = len(job_folders(state)), len(live_marks(state))
    some = f"{marks} attempt{'s' * (marks != 1)} may run"
    yield StateFinding("ok", f"{folders} folder{'s' * (folders != 1)} of jobs, {some}")


def _find_submitted(db: sqlite3.Connection) -> Iterator[Submitted]:
    wanted = db.execute("SELECT json FROM events WHERE instr(json, '\"Submitted\"') > 0")
    for (line,) in wanted:
        try:
            _, event = read_event(line)
        except WeftError:
            continue  # told above
        if isinstance(event, Submitted):
            yield event


# Going on without rows that the log lacks, because someone said so.

ACCEPTED = "it is missing, and the loss was accepted"


def accept_loss(state: Path) -> list[int]:
    """Mark every missing row as lost for good; which ones. The service must not run."""
    if not (state / LOG).is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    store = SqliteStore(state / LOG)
    try:
        lost = store.missing()
        for seq in lost:
            store.set_aside(seq, ACCEPTED)
    finally:
        store.close()
    return lost


def downgrade_log(state: Path, database: str, to: str) -> tuple[str, dict[str, int]]:
    """Give the log the format of an earlier version, which must not run; nothing is lost.

    Returns that version, and how often the log now lacks each thing, in words.
    """
    number = next((n for n, weft in WRITTEN_BY.items() if to in (weft, str(n))), None)
    if number is None:
        known = ", ".join(f"{weft} (log format {n})" for n, weft in WRITTEN_BY.items())
        raise InvalidConfig(f"no log can be written for weft {to}", hint=f"only for: {known}")
    if not database and not (state / LOG).is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    store: SqlLog
    if database:
        from weft.store.postgres import PostgresStore

        store = PostgresStore(database)
    else:
        store = SqliteStore(state / LOG)
    try:
        lacks = store.downgrade(number)
    finally:
        store.close()
    return WRITTEN_BY[number], {MAY_GO[path]: count for path, count in lacks.items()}


MANIFEST = "backup.json"


@frozen
class Backup:
    """The content of a backup: the log up to event `last`, and the SHA-256 of every file."""

    weft: str
    at: float
    last: int
    files: dict[str, str]


def make_backup(state: Path, target: Path) -> Backup:
    """Copy the log and the settings in `state` to the new folder `target`; whole or not at all."""
    if not (state / LOG).is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    if target.exists():
        raise InvalidConfig(f"{target} is there already", hint="name a new folder")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        fresh.mkdir(mode=PRIVATE_FOLDER, parents=True)
        last = _copy_log(state / LOG, fresh / LOG)
        for name in SETTINGS:
            if (state / name).is_file():
                _copy(state / name, fresh / name)
        files = {path.name: _digest(path) for path in sorted(fresh.iterdir())}
        made = Backup(__version__, time.time(), last, files)
        _write(fresh / MANIFEST, json.dumps(asdict(made), indent=1).encode())
        fresh.rename(target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidConfig(f"cannot write the backup {target}: {error.strerror}") from error
    except sqlite3.Error as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise InvalidConfig(
            f"{state / LOG} cannot be copied: {error}", hint="`weft state check` says more"
        ) from error
    return made


def restore_backup(source: Path, state: Path) -> tuple[Backup, list[str]]:
    """Bring a backup back into `state`, where there must be no log; settings there are kept.

    Returns the backup and the names of the files that were brought back.
    """
    made = read_backup(source)
    make_private(state)
    for name in (LOG, f"{LOG}-wal", f"{LOG}-journal"):
        if (state / name).exists() and (state / name).stat().st_size:
            raise InvalidConfig(
                f"{state / name} is there, and nothing is written over",
                hint="stop the service and move it away first; keep it until all is well",
            )
    owned = own(state / LOG)
    try:
        if not (state / LOG).exists() or not (state / LOG).stat().st_size:
            (state / LOG).unlink(missing_ok=True)
        missing = [name for name in made.files if not (state / name).exists()]
        for left in (f"{LOG}-wal", f"{LOG}-shm"):  # of the log before
            (state / left).unlink(missing_ok=True)
        for name in missing:
            _copy(source / name, state / name)
    finally:
        os.close(owned)
    return made, missing


def read_backup(source: Path) -> Backup:
    """The description of a backup; InvalidConfig unless every file is as it was written."""
    try:
        made = Backup(**json.loads((source / MANIFEST).read_text()))
        wrong = [name for name, digest in made.files.items() if _digest(source / name) != digest]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidConfig(
            f"{source} is no backup: {error}", hint="`weft state backup` makes one"
        ) from error
    if LOG not in made.files or any(Path(name).name != name for name in made.files):
        raise InvalidConfig(f"{source} is no backup: {MANIFEST} names other files than it may")
    if wrong:
        raise InvalidConfig(
            f"{source / wrong[0]} has changed since the backup", hint="take another backup"
        )
    return made


def _copy_log(source: Path, target: Path) -> int:
    """An online copy: appending is not held up, and the copy is of one moment."""
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    with closing(reading), closing(sqlite3.connect(target)) as copy:
        reading.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file, with nothing beside it
        (damage,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        row = copy.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return int(row[0]) if row else 0


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_bytes())


def _write(target: Path, data: bytes) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


@frozen
class Prunable:
    """Things that would go: ended jobs with the bytes of their folders, and events up to `cut`."""

    jobs: tuple[JobId, ...]
    bytes: int
    kept: int
    events: int
    cut: int | None


def find_prunable(state: Path, keep: Keep) -> Prunable:
    """The part that `keep` does not keep; reads only, and may be asked while the service runs."""
    log = state / LOG
    if not log.is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    try:
        with closing(sqlite3.connect(f"{log.absolute().as_uri()}?mode=ro", uri=True)) as db:
            ledger, last, at = _read_ledger(db)
            now = max(time.time(), at)
            bases = db.execute("SELECT seq, at FROM bases ORDER BY seq").fetchall()
            cut = choose_base(bases, last, now, keep)
            counted = db.execute("SELECT count(*) FROM events WHERE seq <= ?", (cut or 0,))
            (events,) = counted.fetchone()
            past = ended_jobs(db)
    except sqlite3.Error as error:
        raise InvalidConfig(
            f"{log} cannot be read: {error}", hint="`weft state check` says more"
        ) from error
    live = ledger.jobs.live.values()
    left = {
        record.job.id: (record.ended, record.job.tenant)
        for record in live
        if record.ended and record.running is None
    }
    oldest = sorted((at, job, tenant) for job, (at, tenant) in (past | left).items())
    sizes = stored_bytes(state, [job for _, job, _ in oldest])
    chosen = choose_jobs(oldest, now, keep, sizes=sizes)
    size = sum(sizes[job] for job in chosen)
    kept = len(past.keys() | ledger.jobs.live) - len(chosen)
    return Prunable(tuple(chosen), size, kept, events, cut)


def prune(state: Path, keep: Keep) -> Prunable:
    """Remove it; the service must not run. Its next start forgets the jobs' records."""
    prunable = find_prunable(state, keep)
    store = SqliteStore(state / LOG)
    try:
        remove_jobs(state, prunable.jobs)
        if prunable.cut is not None:
            store.compact(prunable.cut)
        store.shrink()
    finally:
        store.close()
    return prunable


def _read_ledger(db: sqlite3.Connection) -> tuple[Ledger, int, float]:
    """The ledger that the log leads to, its last event's number and time."""
    ledger, last, at = Ledger(), 0, 0.0
    for seq, data in _find_snapshots(db):
        try:
            tables = thaw(bytes(data)).tables
        except DamagedSnapshot:
            continue
        promised = {(table.job, table.attempt): table.on for table in tables["promised"]}
        ledger, last = Ledger(tables["records"], promised, tables["usage"]), seq
        break
    for seq, line in db.execute("SELECT seq, json FROM events WHERE seq > ?", (last,)):
        try:
            at, event = read_event(line)
            ledger.fold(at, event)
        except (WeftError, KeyError):
            continue  # the next start sets it aside
        last = seq
    return ledger, last, at


def _find_snapshots(db: sqlite3.Connection) -> Iterator[tuple[int, bytes]]:
    yield from db.execute("SELECT seq, data FROM snapshots ORDER BY seq DESC").fetchall()
    (base,) = db.execute(BEGINS_AFTER).fetchone()
    yield from db.execute("SELECT seq, data FROM bases WHERE seq = ?", (base,)).fetchall()
