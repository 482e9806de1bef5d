"""Events of one job, from a log of many."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from weft.core.codec import read_event
from weft.core.events import Decided, Event, Submitted
from weft.core.model import JobId
from weft.core.ports import Store
from weft.store.sqlite import SqliteStore

MOST = 10_000

Row = tuple[int, float, Event]


def events_about(store: Store, job: JobId, limit: int = MOST) -> list[Row]:
    """The last `limit` events that name a job, oldest first. May take a while: not for a loop."""
    rows = [one for one in _rows(store, job) if names(one[2], job)]
    return rows[-limit:]


def names(event: Event, job: JobId) -> bool:
    """Whether an event is about a job."""
    if isinstance(event, Submitted):
        return event.job.id == job
    if isinstance(event, Decided):
        return job in event.changes or job in event.rejected or job in event.reasons
    return getattr(event, "job", None) == job


def _rows(store: Store, job: JobId) -> Iterator[Row]:
    if not isinstance(store, SqliteStore):
        yield from store.since(0)
        return
    # A connection of its own: the log is read while the driver goes on writing it.
    db = sqlite3.connect(f"{store.path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        found = db.execute(
            "SELECT seq, json FROM events WHERE instr(json, ?) > 0 ORDER BY seq", (f'"{job}"',)
        )
        for seq, line in found:
            at, event = read_event(line)
            yield seq, at, event
    finally:
        db.close()
