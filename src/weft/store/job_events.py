"""Events of one job by indexes of the log, without reading those of all others."""

from __future__ import annotations

import json
from math import inf

from weft.core.model.job import JobId
from weft.store.reading import Reading

DECISIONS_SEARCHED = 100_000  # events back from the last
# Of an event's text: what it is, and the job that it is about.
KIND = "CASE WHEN json_valid(json) THEN json_extract(json, '$.event') END"
JOB = (
    "CASE WHEN json_valid(json) THEN"
    " coalesce(json_extract(json, '$.job.id'), json_extract(json, '$.job')) END"
)
INDEXES = f"""
CREATE INDEX IF NOT EXISTS events_of_job ON events ({JOB}) WHERE {KIND} <> 'Decided';
CREATE INDEX IF NOT EXISTS decisions ON events (seq) WHERE {KIND} = 'Decided';
CREATE INDEX IF NOT EXISTS events_at ON events (at);
"""
OF_JOB = f"""
SELECT seq, json FROM events WHERE {KIND} <> 'Decided' AND {JOB} = :job
ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608 - our own words
DECISIONS = f"""
SELECT seq, json FROM events WHERE {KIND} = 'Decided' AND seq > :first AND seq <= :last
AND instr(json, :text) > 0 ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608
NEWEST = "SELECT coalesce(max(seq), 0) FROM events WHERE at <= ?"


def lines_about(
    reading: Reading, job: JobId, limit: int, until: float | None
) -> list[tuple[int, str]]:
    """The last lines that may be about a job, oldest first; nobody who appends waits for it."""
    values = {"job": job, "limit": limit, "text": json.dumps(job)}
    rows = reading.ask(OF_JOB, values)
    ((last,),) = reading.ask(NEWEST, (inf if until is None else until,))
    first = max(rows[-1][0] if rows else 0, last - DECISIONS_SEARCHED)
    rows += reading.ask(DECISIONS, {**values, "first": first, "last": last})
    return sorted(rows)[-limit:]
