"""Events of one job by indexes of the log, without reading those of all others."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

from weft.core.model.job import JobId
from weft.frozen import frozen

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


@frozen
class Search:
    """Words for a database in which `kind` and `job` are of an event, and `find` looks in texts."""

    kind: str
    job: str
    find: str

    @property
    def of_job(self) -> str:
        """The last events about a job itself."""
        return f"""
SELECT seq, json FROM events WHERE {self.kind} <> 'Decided' AND {self.job} = :job
ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608 - our own words

    @property
    def decisions(self) -> str:
        """Decisions in which its name stands."""
        return f"""
SELECT seq, json FROM events WHERE {self.kind} = 'Decided' AND seq > :first AND seq <= :last
AND {self.find}(json, :text) > 0 ORDER BY seq DESC LIMIT :limit
"""  # noqa: S608


IN_SQLITE = Search(KIND, JOB, "instr")
NEWEST = "SELECT coalesce(max(seq), 0) FROM events WHERE at <= ?"


def lines_about(
    ask: Callable[..., list[Any]], search: Search, job: JobId, limit: int, until: float | None
) -> list[tuple[int, str]]:
    """The last lines that may be about a job, oldest first; appending never waits for it."""
    values = {"job": job, "limit": limit, "text": json.dumps(job)}
    rows = ask(search.of_job, values)
    ((last,),) = ask(NEWEST, (inf if until is None else until,))
    first = max(rows[-1][0] if rows else 0, last - DECISIONS_SEARCHED)
    rows += ask(search.decisions, {**values, "first": first, "last": last})
    return sorted(rows)[-limit:]
