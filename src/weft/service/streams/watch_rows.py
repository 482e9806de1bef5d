"""Jobs for clients that watch many: short rows, and reasons that are sent once for all."""

from __future__ import annotations

from collections.abc import Hashable, Set
from dataclasses import dataclass, field

from weft.core.model.job import JobId, Slice
from weft.runtime.loop.driver import Driver
from weft.runtime.records.job_records import JobRecord
from weft.runtime.records.status import JobStatus
from weft.service.jobs.job_view import JobView, is_idle, row_fields, silent_s
from weft.service.responses.watch import Place, WatchedJob

WAITING = ("pending", "preempted", "suspended")
NO_REASON = 0
MOST_REASONS = 50_000


@dataclass(slots=True)
class Reasons:
    """Why jobs wait, by number. Jobs that ask for the same wait for the same, and share one.

    When it changes, its text is sent again and none of their rows.
    """

    texts: dict[int, str] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _examples: dict[int, JobId] = field(default_factory=dict)
    _last: int = NO_REASON

    def number(self, driver: Driver, job_view: JobView, status: JobStatus) -> int:
        """The number of a job's reason, with its text as it is now."""
        text, key = _reason(driver, job_view, status)
        return self.note(key, text, status.record.job.id) if text else NO_REASON

    def note(self, key: Hashable, text: str, job: JobId) -> int:
        """The number of what a reason follows from, which `job` is an example of."""
        number = self._numbers.get(key)
        if number is None:
            self._last += 1
            number = self._numbers[key] = self._last
        self.texts[number] = text
        self._examples[number] = job
        return number

    def renew(self, driver: Driver, job_view: JobView) -> set[JobId]:
        """Look at every reason again; which jobs have another one now."""
        other = set()
        for number, job in [*self._examples.items()]:
            if (
                job in driver.ledger.jobs.active
                and self.number(driver, job_view, driver.job(job)) == number
            ):
                continue
            del self._examples[number]  # found again with the next job that has it
            if job in driver.ledger.jobs.active:
                other.add(job)
        return other

    def tidy(self, used: Set[int], most: int = MOST_REASONS) -> None:
        """Forget reasons that no job has where there are too many; no number is given again."""
        if len(self._numbers) > most:
            self._numbers = {key: n for key, n in self._numbers.items() if n in used}
            self.texts = {n: self.texts[n] for n in self._numbers.values()}
            self._examples = {n: job for n, job in self._examples.items() if n in used}


def _reason(driver: Driver, job_view: JobView, status: JobStatus) -> tuple[str, Hashable]:
    """A job's reason and what it follows from: jobs with the same have the same text."""
    record = status.record
    text = job_view.reason(status)
    if record.suspended is not None and record.sleeps is None:
        return text, ("suspended", record.suspended)
    if status.state not in WAITING and record.suspended is None:
        own = silent_s(record, driver.now, driver.engine.speed) or is_idle(driver, record)
        running = status.state == "running" and own
        return text, ("running", record.job.id) if running else (record.reason, record.said)
    if record.sleeps is not None:
        return text, ("asleep", record.job.id)
    if record.failures or record.job.conditional:
        return text, ("job", record.job.id)
    return text, (record.said, record.job.demand, record.job.tenant, record.blocker)


def row_of(driver: Driver, status: JobStatus, why: int) -> WatchedJob:
    """One job in short."""
    record, job, on = status.record, status.record.job, status.record.allocation
    return WatchedJob(
        **row_fields(driver, status),
        why=why,
        pace=record.report.pace if status.state == "running" else None,
        share=job.demand.share if on is None else on.sharing.share,
        on=[Place(node=part.node, gpus=list(part.gpus)) for part in _slices(driver, record)],
        suspended=record.suspended is not None,
    )


def _slices(driver: Driver, record: JobRecord) -> tuple[Slice, ...]:
    """What a job is promised; of one that was asked to go, what it has not left yet."""
    on = record.allocation
    if on is None and record.running is not None:
        on = driver.scheduler.state.releasing.find(record.job.id, record.running)
    return () if on is None else on.slices
