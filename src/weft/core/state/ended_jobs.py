"""Jobs that have ended, kept beside the log and found by indexes: nobody holds all of them.

A row is what pages, counts and names need; `data` is all the rest, which only whoever wrote it
reads. Rows are numbered in order of submission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from weft.core.model.job import JobId


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended and holds nothing any more; `name` is what people call it."""

    number: int
    job: JobId
    tenant: str
    user: str
    name: str
    app: str
    outcome: str
    submitted: float
    ended: float
    data: bytes


class EndedJobs(Protocol):
    """A table of ended jobs. Reading is for any thread, and holds up nobody who appends."""

    def put(self, rows: Sequence[EndedJob]) -> None:
        """Keep rows, in the place of those of the same job; durable on return."""
        ...

    def reset(self, number: int, jobs: Collection[JobId]) -> None:
        """Drop rows of this number and later, and of these jobs: the log tells them anew."""
        ...

    def remove(self, jobs: Collection[JobId]) -> None:
        """Forget these jobs; unknown ones are fine."""
        ...

    def get(self, job: JobId) -> EndedJob | None:
        """The row of one job."""
        ...

    def page(
        self,
        after: int,
        limit: int,
        *,
        tenant: str | None = None,
        outcome: str | None = None,
        app: str | None = None,
    ) -> list[EndedJob]:
        """Rows after a number, in order: of a tenant, of an app, and that ended so, or all."""
        ...

    def first_since(self, at: float) -> int | None:
        """The number of the first row that was submitted at `at` or later."""
        ...

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many rows there are of each tenant and outcome."""
        ...

    def oldest(self, limit: int | None) -> list[tuple[float, JobId]]:
        """When they ended, and which: those that ended first; all without a limit."""
        ...

    def named(self, name: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Those that people call so, by name or by id without its tenant, newest last."""
        ...

    def beginning(self, text: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Those whose id begins so."""
        ...

    def apps(self, text: str, limit: int, *, tenant: str | None = None) -> list[str]:
        """Names of apps that begin so, in their order."""
        ...

    def latest(
        self, limit: int, *, tenant: str | None = None, user: str | None = None
    ) -> list[JobId]:
        """The last that were submitted, newest first."""
        ...


class EndedInMemory:
    """The same in a table that ends with the process."""

    def __init__(self) -> None:
        self._rows: dict[JobId, EndedJob] = {}

    def put(self, rows: Sequence[EndedJob]) -> None:
        """Keep rows."""
        self._rows |= {one.job: one for one in rows}

    def reset(self, number: int, jobs: Collection[JobId]) -> None:
        """Drop rows from a number on, and of these jobs."""
        gone = set(jobs)
        kept = (one for one in self._rows.values() if one.number < number and one.job not in gone)
        self._rows = {one.job: one for one in kept}

    def remove(self, jobs: Collection[JobId]) -> None:
        """Forget these jobs."""
        for job in jobs:
            self._rows.pop(job, None)

    def get(self, job: JobId) -> EndedJob | None:
        """The row of one job."""
        return self._rows.get(job)

    def page(
        self,
        after: int,
        limit: int,
        *,
        tenant: str | None = None,
        outcome: str | None = None,
        app: str | None = None,
    ) -> list[EndedJob]:
        """Rows after a number, in order."""
        found = (
            one
            for one in self._ordered()
            if one.number > after
            and tenant in (None, one.tenant)
            and outcome in (None, one.outcome)
            and app in (None, one.app)
        )
        return [one for one, _ in zip(found, range(limit), strict=False)]

    def first_since(self, at: float) -> int | None:
        """The first submitted then or later."""
        return next((one.number for one in self._ordered() if one.submitted >= at), None)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many of each tenant and outcome."""
        return Counter((one.tenant, one.outcome) for one in self._rows.values())

    def oldest(self, limit: int | None) -> list[tuple[float, JobId]]:
        """Those that ended first."""
        return sorted((one.ended, one.job) for one in self._rows.values())[:limit]

    def named(self, name: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Those that people call so."""
        return self._ids(
            one
            for one in self._ordered()
            if name in (one.name, one.job.rpartition(":")[2]) and tenant in (None, one.tenant)
        )[-limit:]

    def beginning(self, text: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Those whose id begins so."""
        found = self._ids(
            one
            for one in self._rows.values()
            if one.job.startswith(text) and tenant in (None, one.tenant)
        )
        return sorted(found)[:limit]

    def apps(self, text: str, limit: int, *, tenant: str | None = None) -> list[str]:
        """Names of apps that begin so."""
        rows = (one for one in self._rows.values() if tenant in (None, one.tenant))
        return sorted({one.app for one in rows if one.app and one.app.startswith(text)})[:limit]

    def latest(
        self, limit: int, *, tenant: str | None = None, user: str | None = None
    ) -> list[JobId]:
        """The last that were submitted."""
        found = self._ids(
            one
            for one in self._ordered()
            if tenant in (None, one.tenant) and user in (None, one.user)
        )
        return found[::-1][:limit]

    def _ordered(self) -> list[EndedJob]:
        return sorted(self._rows.values(), key=lambda one: one.number)

    @staticmethod
    def _ids(rows: Iterable[EndedJob]) -> list[JobId]:
        return [one.job for one in rows]
