"""Jobs that have ended, kept beside the log and found by indexes: they are never all in memory.

A row is what pages, counts and names need; `data` is all the rest, which only its writer
reads. Rows are numbered in order of submission.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from weft.core.model.job import JobId
from weft.frozen import frozen


@frozen
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


@frozen
class EndedFilter:
    """A choice of rows: of a tenant, of an app, and that ended so; None for any."""

    tenant: str | None = None
    outcome: str | None = None
    app: str | None = None

    def passes(self, row: EndedJob) -> bool:
        """True if a row is among them."""
        return (
            self.tenant in (None, row.tenant)
            and self.outcome in (None, row.outcome)
            and self.app in (None, row.app)
        )


ALL_ENDED = EndedFilter()


class EndedJobs(Protocol):
    """A table of ended jobs. Reading is for any thread, and does not hold up appending."""

    def put(self, rows: Sequence[EndedJob]) -> None:
        """Keep rows, in the place of those of the same job; durable on return."""
        ...

    def reset(self, number: int, jobs: Collection[JobId]) -> None:
        """Drop rows of this number and later, and of these jobs: the log tells them again."""
        ...

    def remove(self, jobs: Collection[JobId]) -> None:
        """Forget these jobs; unknown ones are fine."""
        ...

    def get(self, job: JobId) -> EndedJob | None: ...

    def outcomes(self, jobs: Collection[JobId]) -> dict[JobId, str]:
        """Return the outcomes of these jobs, those that are not here left out."""
        ...

    def page(self, after: int, limit: int, of: EndedFilter = ALL_ENDED) -> list[EndedJob]:
        """Rows after a number that a filter lets through, in order."""
        ...

    def first_since(self, at: float) -> int | None:
        """The number of the first row that was submitted at `at` or later."""
        ...

    def ended_since(self, at: float, outcome: str, limit: int) -> list[EndedJob]:
        """Rows of jobs that ended so at `at` or later, the last first."""
        ...

    def counts(self) -> Mapping[tuple[str, str], int]:
        """The number of rows of each tenant and outcome."""
        ...

    def oldest(self, limit: int | None) -> list[tuple[float, JobId, str]]:
        """The end, job and tenant of those that ended first; all without a limit."""
        ...

    def find_by_name(self, name: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Return jobs by name, or by id without its tenant, newest last."""
        ...

    def find_by_prefix(self, text: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """Return jobs whose id begins so."""
        ...

    def app_names(self, text: str, limit: int, *, tenant: str | None = None) -> list[str]:
        """Names of apps that begin so, in their order."""
        ...

    def of_app(self, app: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        """The first jobs of an app, in order of submission."""
        ...

    def latest(
        self, limit: int, *, tenant: str | None = None, user: str | None = None
    ) -> list[JobId]:
        """The last that were submitted, newest first."""
        ...


class EndedInMemory:
    """Ended jobs in a table that ends with the process."""

    def __init__(self) -> None:
        self._rows: dict[JobId, EndedJob] = {}

    def put(self, rows: Sequence[EndedJob]) -> None:
        self._rows |= {ended_job.job: ended_job for ended_job in rows}

    def reset(self, number: int, jobs: Collection[JobId]) -> None:
        gone = set(jobs)
        kept = (
            ended_job
            for ended_job in self._rows.values()
            if ended_job.number < number and ended_job.job not in gone
        )
        self._rows = {ended_job.job: ended_job for ended_job in kept}

    def remove(self, jobs: Collection[JobId]) -> None:
        for job in jobs:
            self._rows.pop(job, None)

    def get(self, job: JobId) -> EndedJob | None:
        return self._rows.get(job)

    def outcomes(self, jobs: Collection[JobId]) -> dict[JobId, str]:
        return {job: self._rows[job].outcome for job in jobs if job in self._rows}

    def page(self, after: int, limit: int, of: EndedFilter = ALL_ENDED) -> list[EndedJob]:
        rows = (row for row in self._ordered() if row.number > after and of.passes(row))
        return [row for row, _ in zip(rows, range(limit), strict=False)]

    def first_since(self, at: float) -> int | None:
        return next(
            (ended_job.number for ended_job in self._ordered() if ended_job.submitted >= at), None
        )

    def ended_since(self, at: float, outcome: str, limit: int) -> list[EndedJob]:
        rows = (row for row in self._rows.values() if row.outcome == outcome and row.ended >= at)
        return sorted(rows, key=lambda row: (row.ended, row.job), reverse=True)[:limit]

    def counts(self) -> Mapping[tuple[str, str], int]:
        return Counter((ended_job.tenant, ended_job.outcome) for ended_job in self._rows.values())

    def oldest(self, limit: int | None) -> list[tuple[float, JobId, str]]:
        return sorted((row.ended, row.job, row.tenant) for row in self._rows.values())[:limit]

    def find_by_name(self, name: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        return self._ids(
            ended_job
            for ended_job in self._ordered()
            if name in (ended_job.name, ended_job.job.rpartition(":")[2])
            and tenant in (None, ended_job.tenant)
        )[-limit:]

    def find_by_prefix(self, text: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        job_ids = self._ids(
            ended_job
            for ended_job in self._rows.values()
            if ended_job.job.startswith(text) and tenant in (None, ended_job.tenant)
        )
        return sorted(job_ids)[:limit]

    def app_names(self, text: str, limit: int, *, tenant: str | None = None) -> list[str]:
        rows = (
            ended_job for ended_job in self._rows.values() if tenant in (None, ended_job.tenant)
        )
        return sorted(
            {
                ended_job.app
                for ended_job in rows
                if ended_job.app and ended_job.app.startswith(text)
            }
        )[:limit]

    def of_app(self, app: str, limit: int, *, tenant: str | None = None) -> list[JobId]:
        return self._ids(row for row in self.page(-1, limit, EndedFilter(tenant, None, app)))

    def latest(
        self, limit: int, *, tenant: str | None = None, user: str | None = None
    ) -> list[JobId]:
        job_ids = self._ids(
            ended_job
            for ended_job in self._ordered()
            if tenant in (None, ended_job.tenant) and user in (None, ended_job.user)
        )
        return job_ids[::-1][:limit]

    def _ordered(self) -> list[EndedJob]:
        return sorted(self._rows.values(), key=lambda ended_job: ended_job.number)

    @staticmethod
    def _ids(rows: Iterable[EndedJob]) -> list[JobId]:
        return [row.job for row in rows]
