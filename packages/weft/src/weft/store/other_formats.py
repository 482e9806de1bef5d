"""From one format of the log to another: what an older version cannot hold is kept beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from weft.core.codec.event_lines import read_event
from weft.core.codec.log_schema import MAY_GO, WRITTEN_BY, rewrite
from weft.core.errors import InvalidConfig, WeftError
from weft.core.events.event import Cancelled, Event, Failed, Finished, Submitted
from weft.core.model.job import JobId
from weft.store.ended_jobs import LogOwner

UNREADABLE = "it cannot be read"
READ_AT_ONCE = 5_000
KEPT = "CREATE TABLE IF NOT EXISTS newer_lines (seq BIGINT PRIMARY KEY, json TEXT NOT NULL)"
PutLine = Callable[[int, str], None]


def upgrade(db: LogOwner, put: PutLine) -> None:
    """Inside a transaction: bring back what an older version could not read.

    These are the lines as they were before a downgrade, and accepted jobs that an older version
    set aside without one: those that have not ended wait again.
    """
    db.execute(KEPT)
    for seq, line in db.execute("SELECT seq, json FROM newer_lines ORDER BY seq").fetchall():
        if db.execute("SELECT 1 FROM events WHERE seq = ?", (seq,)).fetchone():
            put(seq, line)
    db.execute("DROP TABLE newer_lines")
    for seq, line in _lost_jobs(db):
        put(seq, line)
        db.execute("DELETE FROM set_aside WHERE seq = ?", (seq,))


def _lost_jobs(db: LogOwner) -> list[tuple[int, str]]:
    """Rows set aside in which jobs were submitted that did not end."""
    submitted: dict[JobId, tuple[int, str]] = {}
    for seq, line, why in db.execute("SELECT seq, json, why FROM set_aside ORDER BY seq"):
        try:
            _, event = read_event(line)
        except WeftError:
            continue
        if isinstance(event, Submitted) and why.startswith(UNREADABLE):
            submitted[event.job.id] = (seq, line)
        elif (job := _ended(event)) is not None:
            submitted.pop(job, None)
    return [*submitted.values()]


def _ended(event: Event) -> JobId | None:
    match event:
        case Finished(job) | Cancelled(job) | Failed(job, retry=False):
            return job
        case _:
            return None


def downgrade(db: LogOwner, put: PutLine, log_format: int) -> Counter[str]:
    """Inside a transaction: write every line as an earlier format has it.

    Returns how often each thing that the format does not know was left out.
    """
    if log_format not in WRITTEN_BY:
        known = ", ".join(f"{number} (weft {weft})" for number, weft in WRITTEN_BY.items())
        raise InvalidConfig(f"format {log_format} cannot be written", hint=f"these can: {known}")
    db.execute(KEPT)
    lacks: Counter[str] = Counter()
    last = 0
    while rows := _page(db, last):
        for seq, line in rows:
            record = json.loads(line)
            older, unknown = rewrite(record, log_format)
            if not unknown:
                continue
            _refuse_others(seq, record, unknown, log_format)
            db.execute("INSERT INTO newer_lines VALUES (?, ?)", (seq, line))
            put(seq, json.dumps(older, separators=(",", ":")))
            lacks.update(unknown)
        last = rows[-1][0]
    for table in ("snapshots", "bases"):  # what they hold follows from the log
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - our own words
    return lacks


def _page(db: LogOwner, after: int) -> list[tuple[int, str]]:
    rows: list[tuple[int, str]] = db.execute(
        "SELECT seq, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (after, READ_AT_ONCE)
    ).fetchall()
    return rows


def _refuse_others(seq: int, record: dict[str, Any], unknown: list[str], log_format: int) -> None:
    needed = sorted(set(unknown) - MAY_GO.keys())
    if needed:
        raise InvalidConfig(
            f"event {seq} ({record['event']}) says {', '.join(needed)}, and weft "
            f"{WRITTEN_BY[log_format]} knows nothing of it",
            hint="it would act otherwise without; stay with this version, or bring back a backup "
            "from before the upgrade with `weft state restore`",
        )
