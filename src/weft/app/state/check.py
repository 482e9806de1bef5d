"""Whether a state folder is whole: its log, its snapshots, and the folders of jobs beside it.

Reads only, and may be asked while the service runs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from weft.app.state.folder import JOBS, LOG, job_folders, live_marks, open_to_others
from weft.core.codec.event_lines import read_event
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events.event import Submitted
from weft.frozen import frozen
from weft.runtime.recovery.snapshot import DamagedSnapshot, thaw
from weft.store.ended_jobs import ended_jobs
from weft.store.sql_log import BEGINS_AFTER
from weft.store.sqlite import SqliteStore

Level = Literal["ok", "warning", "error"]
SHOWN = 5
RESTORE = "stop the service, move it away, and bring a backup back with `weft state restore`"


@frozen
class Finding:
    """One thing that was looked at; `do` says what to do about it, empty where nothing."""

    level: Level
    what: str
    do: str = ""


def check_state(state: Path) -> list[Finding]:
    """Everything that can be said of the folder without changing it."""
    if not state.is_dir():
        return [Finding("error", f"{state} is not a folder", "name the service's with --state")]
    return [*_permissions(state), *_log(state)]


def _permissions(state: Path) -> Iterator[Finding]:
    wide = [path.name or str(path) for path in open_to_others(state)]
    if wide:
        yield Finding(
            "warning",
            f"other users may use {', '.join(wide[:SHOWN])}",
            "the next start of the service closes them",
        )
    else:
        yield Finding("ok", "closed to other users")


def _log(state: Path) -> Iterator[Finding]:
    log, beside = state / LOG, len(job_folders(state))
    if not log.exists() or not log.stat().st_size:
        what = f"{log} is {'empty' if log.exists() else 'missing'}"
        if beside:
            yield Finding("error", f"{what}, and {JOBS} holds {beside} jobs", RESTORE)
        else:
            yield Finding("ok", f"{what}: nothing has been run here yet")
        return
    try:
        with closing(sqlite3.connect(f"{log.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield from _database(db)
            yield from _snapshots(db)
            yield from _beside(state, db)
    except sqlite3.DatabaseError as error:
        yield Finding("error", f"{log} is damaged: {error}", RESTORE)


def _database(db: sqlite3.Connection) -> Iterator[Finding]:
    (damage,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if damage != "ok":
        yield Finding("error", f"the log is damaged: {damage}", RESTORE)
    count, first, end = db.execute("SELECT count(*), min(seq), max(seq) FROM events").fetchone()
    yield Finding("ok", f"{count} events" + (f", {first} to {end}" if count else ""))
    aside = dict(db.execute("SELECT seq, why FROM set_aside").fetchall())
    if aside:
        reasons = "; ".join(f"{seq}: {why}" for seq, why in [*aside.items()][:SHOWN])
        yield Finding(
            "warning",
            f"{len(aside)} events were set aside: {reasons[:500]}",
            "what they said is not known to the service; they are kept in the table set_aside",
        )
    missing = [*_find_missing(db, set(aside))]
    if missing:
        shown = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in missing[:SHOWN])
        yield Finding(
            "error",
            f"the log lacks events {shown}",
            f"{RESTORE}; or go on without them: `weft state accept-loss`",
        )
    bad = [*_unreadable(db)]
    if bad:
        yield Finding(
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


def _snapshots(db: sqlite3.Connection) -> Iterator[Finding]:
    for table, word in (("bases", "base"), ("snapshots", "snapshot")):
        for seq, data in db.execute(f"SELECT seq, data FROM {table} ORDER BY seq"):  # noqa: S608
            try:
                jobs = len(thaw(bytes(data)).tables["records"])
            except DamagedSnapshot as error:
                needed = table == "bases"
                yield Finding(
                    "error" if needed else "warning",
                    f"the {word} of event {seq} cannot be used: {error.what}",
                    RESTORE if needed else "none: it is skipped, and the log is read instead",
                )
            else:
                yield Finding("ok", f"{word} of event {seq}, {jobs} jobs, checksum right")


def _beside(state: Path, db: sqlite3.Connection) -> Iterator[Finding]:
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
        yield Finding(
            "warning",
            f"{JOBS} holds {len(strange)} jobs that the log does not know: "
            + ", ".join(strange[:SHOWN]),
            "the log is older than they are; look at them, then remove those folders by hand",
        )
    folders, marks = len(job_folders(state)), len(live_marks(state))
    some = f"{marks} attempt{'s' * (marks != 1)} may run"
    yield Finding("ok", f"{folders} folder{'s' * (folders != 1)} of jobs, {some}")


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
