"""Ended jobs in a table beside the log: written by its owner, read by any thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Protocol

from weft.core.model.job import JobId
from weft.core.state.ended_jobs import ALL_ENDED, EndedFilter, EndedJob

TABLE = """
CREATE TABLE IF NOT EXISTS ended_jobs (
    number INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL,
    "user" TEXT NOT NULL, name TEXT NOT NULL, short TEXT NOT NULL, app TEXT NOT NULL,
    outcome TEXT NOT NULL, submitted REAL NOT NULL, ended REAL NOT NULL, data BLOB NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS ended_by_tenant ON ended_jobs (tenant, outcome, number);
CREATE INDEX IF NOT EXISTS ended_of_tenant ON ended_jobs (tenant, number);
CREATE INDEX IF NOT EXISTS ended_by_outcome ON ended_jobs (outcome, number);
CREATE INDEX IF NOT EXISTS ended_by_user ON ended_jobs ("user", number);
CREATE INDEX IF NOT EXISTS ended_by_name ON ended_jobs (name, number);
CREATE INDEX IF NOT EXISTS ended_by_short ON ended_jobs (short, number);
CREATE INDEX IF NOT EXISTS ended_of_app ON ended_jobs (app, number) WHERE app <> '';
CREATE INDEX IF NOT EXISTS ended_submitted ON ended_jobs (submitted);
CREATE INDEX IF NOT EXISTS ended_at ON ended_jobs (ended, job);
"""
COLUMNS = 'number, job, tenant, "user", name, app, outcome, submitted, ended, data'
MAKE_ROOM = "DELETE FROM ended_jobs WHERE number = ? OR job = ?"
PUT = "INSERT INTO ended_jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
NO_LIMIT = 2**63 - 1
ASKED_AT_ONCE = 500  # ids in one question
NAMED = """
SELECT number, job FROM (
    SELECT number, job, tenant FROM ended_jobs WHERE name = :name
    UNION SELECT number, job, tenant FROM ended_jobs WHERE short = :name
) AS found WHERE :tenant IS NULL OR tenant = :tenant ORDER BY number DESC LIMIT :limit
"""
OLDEST = "SELECT ended, job, tenant FROM ended_jobs ORDER BY ended, job LIMIT ?"
BEGINNING = """
SELECT job FROM ended_jobs WHERE job >= :text AND job < :past
AND (:tenant IS NULL OR tenant = :tenant) ORDER BY job LIMIT :limit
"""
APPS = """
SELECT DISTINCT app FROM ended_jobs WHERE app <> '' AND app >= :text AND app < :past
AND (:tenant IS NULL OR tenant = :tenant) ORDER BY app LIMIT :limit
"""
OF_APP = """
SELECT job FROM ended_jobs WHERE app = :app AND app <> ''
AND (:tenant IS NULL OR tenant = :tenant) ORDER BY number LIMIT :limit
"""
PAST_ANY = chr(0x10FFFF)
Transaction = Callable[[str], AbstractContextManager[None]]


class SqlReader(Protocol):
    """Reads rows while another connection writes, from any thread."""

    def query(self, words: str, values: Any = ()) -> list[Any]: ...


class LogOwner(Protocol):
    """The connection that writes: `?` and `:name` stand for values."""

    def execute(self, words: str, values: Any = (), /) -> Any: ...

    def executemany(self, words: str, rows: Any, /) -> Any:
        """Execute a statement for each of several rows."""
        ...


class EndedTable:
    """The table, read by `reading`; `writing` is a transaction on `owner`."""

    def __init__(self, reading: SqlReader, owner: LogOwner, writing: Transaction) -> None:
        self._reading, self._owner, self._writing = reading, owner, writing

    def put(self, rows: Sequence[EndedJob]) -> None:
        with self._writing(f"{len(rows)} ended jobs"):
            for row in rows:
                self._owner.execute(MAKE_ROOM, (row.number, row.job))
                self._owner.execute(PUT, _cells(row))

    def reset(self, number: int, jobs: Collection[JobId]) -> None:
        with self._writing("ended jobs"):
            self._owner.execute("DELETE FROM ended_jobs WHERE number >= ?", (number,))
            self._drop(jobs)

    def remove(self, jobs: Collection[JobId]) -> None:
        with self._writing("ended jobs"):
            self._drop(jobs)

    def get(self, job: JobId) -> EndedJob | None:
        rows = self._reading.query(f"SELECT {COLUMNS} FROM ended_jobs WHERE job = ?", (job,))  # noqa: S608
        return EndedJob(*rows[0]) if rows else None

    def outcomes(self, jobs: Collection[JobId]) -> dict[JobId, str]:
        every: list[JobId] = [*jobs]
        known: dict[JobId, str] = {}
        for start in range(0, len(every), ASKED_AT_ONCE):
            some = every[start : start + ASKED_AT_ONCE]
            marks = ", ".join("?" * len(some))
            known.update(
                self._reading.query(
                    f"SELECT job, outcome FROM ended_jobs WHERE job IN ({marks})",  # noqa: S608
                    some,
                )
            )
        return known

    def page(self, after: int, limit: int, of: EndedFilter = ALL_ENDED) -> list[EndedJob]:
        also = asdict(of)
        words = " AND ".join(
            f'"{name}" = :{name}' for name, held in also.items() if held is not None
        )
        words += " AND app <> ''" if of.app else ""
        rows = self._reading.query(
            f"SELECT {COLUMNS} FROM ended_jobs WHERE number > :after"  # noqa: S608 - our own words
            f"{' AND ' + words if words else ''} ORDER BY number LIMIT :limit",
            {**also, "after": after, "limit": limit},
        )
        return [EndedJob(*row) for row in rows]

    def first_since(self, at: float) -> int | None:
        rows = self._reading.query(
            "SELECT number FROM ended_jobs WHERE submitted >= ? ORDER BY submitted, number LIMIT 1",
            (at,),
        )
        return rows[0][0] if rows else None

    def ended_since(self, at: float, outcome: str, limit: int) -> list[EndedJob]:
        rows = self._reading.query(
            # Not by the index of outcomes: that has all years, and this is about the last day.
            f"SELECT {COLUMNS} FROM ended_jobs WHERE ended >= ? AND outcome || '' = ?"  # noqa: S608
            " ORDER BY ended DESC, job DESC LIMIT ?",
            (at, outcome, limit),
        )
        return [EndedJob(*row) for row in rows]

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Count ended jobs of each tenant and outcome."""
        rows = self._reading.query("SELECT tenant, outcome, count(*) FROM ended_jobs GROUP BY 1, 2")
        return {(tenant, outcome): count for tenant, outcome, count in rows}

    def oldest(self, limit: int | None) -> list[tuple[float, JobId, str]]:
        return self._reading.query(OLDEST, (NO_LIMIT if limit is None else limit,))

    def find_by_name(self, name: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        values = {"name": name, "limit": limit, "tenant": tenant}
        return [job for _, job in self._reading.query(NAMED, values)][::-1]

    def find_by_prefix(self, text: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        values = {"text": text, "past": text + PAST_ANY, "limit": limit, "tenant": tenant}
        return [job for (job,) in self._reading.query(BEGINNING, values)]

    def app_names(self, text: str, limit: int, *, tenant: str | None = None) -> list[str]:
        values = {"text": text, "past": text + PAST_ANY, "limit": limit, "tenant": tenant}
        return [app for (app,) in self._reading.query(APPS, values)]

    def of_app(self, app: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        values = {"app": app, "limit": limit, "tenant": tenant}
        return [job for (job,) in self._reading.query(OF_APP, values)]

    def latest(
        self, limit: int, *, tenant: str | None = None, user: str | None = None
    ) -> list[JobId]:
        also = {"tenant": tenant, "user": user}
        words = " AND ".join(
            f'"{name}" = :{name}' for name, held in also.items() if held is not None
        )
        rows = self._reading.query(
            f"SELECT job FROM ended_jobs {'WHERE ' + words if words else ''}"  # noqa: S608
            " ORDER BY number DESC LIMIT :limit",
            {**also, "limit": limit},
        )
        return [job for (job,) in rows]

    def _drop(self, jobs: Collection[JobId]) -> None:
        self._owner.executemany("DELETE FROM ended_jobs WHERE job = ?", [(job,) for job in jobs])


def ended_jobs(db: LogOwner) -> dict[JobId, tuple[float, str]]:
    """Return end and tenant of the table's jobs; none where there is no such table yet."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'ended_jobs'").fetchone():
        return {}
    rows = db.execute("SELECT job, ended, tenant FROM ended_jobs").fetchall()
    return {job: (ended, tenant) for job, ended, tenant in rows}


def _cells(row: EndedJob) -> tuple[object, ...]:
    short = row.job.rpartition(":")[2]
    return (
        row.number,
        row.job,
        row.tenant,
        row.user,
        row.name,
        short,
        row.app,
        row.outcome,
        row.submitted,
        row.ended,
        row.data,
    )
