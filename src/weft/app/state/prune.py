"""Pruning by hand: what would go, and that it goes, while no service runs.

A running service prunes by itself; then this only says what it would do.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from weft.app.state.folder import LOG
from weft.core.codec.event_lines import read_event
from weft.core.errors import InvalidConfig, WeftError
from weft.core.model.job import JobId
from weft.engines.attempts.job_folders import remove_jobs, stored_bytes
from weft.frozen import frozen
from weft.runtime.records.ledger import Ledger
from weft.runtime.recovery.retention import Keep, choose_base, choose_jobs
from weft.runtime.recovery.snapshot import DamagedSnapshot, thaw
from weft.store.ended_jobs import ended_jobs
from weft.store.sql_log import BEGINS_AFTER
from weft.store.sqlite import SqliteStore


@frozen
class Prunable:
    """What would go: ended jobs with the bytes of their folders, and events up to `cut`."""

    jobs: tuple[JobId, ...]
    bytes: int
    kept: int
    events: int
    cut: int | None


def find_prunable(state: Path, keep: Keep, now: float | None = None) -> Prunable:
    """What `keep` does not keep; reads only, and may be asked while the service runs."""
    log = state / LOG
    if not log.is_file():
        raise InvalidConfig(f"{state} holds no log", hint="name the service's folder with --state")
    try:
        with closing(sqlite3.connect(f"{log.absolute().as_uri()}?mode=ro", uri=True)) as db:
            ledger, last, at = _read_ledger(db)
            now = max(time.time(), at) if now is None else now
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
    for seq, data in _snapshots(db):
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


def _snapshots(db: sqlite3.Connection) -> Iterator[tuple[int, bytes]]:
    yield from db.execute("SELECT seq, data FROM snapshots ORDER BY seq DESC").fetchall()
    (base,) = db.execute(BEGINS_AFTER).fetchone()
    yield from db.execute("SELECT seq, data FROM bases WHERE seq = ?", (base,)).fetchall()
