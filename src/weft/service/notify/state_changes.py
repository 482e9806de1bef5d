"""State changes of jobs, from events of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from weft.core.events.event import (
    Awoke,
    Cancelled,
    DeadlineMissed,
    Decided,
    Event,
    Failed,
    Finished,
    LoanRecalled,
    NodeDown,
    NodeUp,
    Noticed,
    Observed,
    PolicyChanged,
    PriorityChanged,
    Reported,
    Resizable,
    Resized,
    ResizeFailed,
    Resumed,
    Saved,
    SleepFailed,
    Slept,
    Started,
    StartFailed,
    Stopped,
    Submitted,
    Suspended,
    Woken,
)
from weft.core.model.job import JobId, name_of
from weft.runtime.loop.driver import Driver
from weft.service.access.redaction import mask, secrets_of


@dataclass(frozen=True, slots=True)
class Change:
    """A job is in another state than before."""

    job: str
    name: str
    tenant: str
    state: str
    event: str
    reason: str = ""

    def body(self) -> dict[str, Any]:
        """As it is told."""
        job = {"id": self.job, "name": self.name, "tenant": self.tenant}
        return {"event": self.event, "state": self.state, "reason": self.reason, "job": job}


def changes_of(driver: Driver, event: Event) -> Iterator[Change]:
    """The changes that one event means."""
    for job, state, reason in _states(event):
        record = driver.ledger.jobs.get(job)
        # A job that was cancelled while it ran is not preempted once it has left.
        if record is not None and not (isinstance(event, Stopped) and record.outcome):
            kind = type(event).__name__
            if isinstance(event, Stopped) and record.suspended is not None:
                state = "suspended"
            state = state or driver.job(job).state
            told = mask(reason, secrets_of(record.job))
            yield Change(job, name_of(record.job), record.job.tenant, state, kind, told)


def _states(event: Event) -> Iterator[tuple[JobId, str, str]]:  # noqa: C901, PLR0912 - one case an event
    match event:
        case Submitted(job):
            yield job.id, "pending", ""
        case Started(job_id) | Awoke(job_id):
            yield job_id, "running", ""
        case Slept(job_id):
            yield job_id, "", "it sleeps"
        case SleepFailed(job_id, _, reason):
            yield job_id, "checkpointing", reason
        case Stopped(job_id):
            yield job_id, "preempted", ""
        case Finished(job_id):
            yield job_id, "succeeded", ""
        case Failed(job_id, _, reason, retry):
            yield job_id, "pending" if retry else "failed", reason
        case StartFailed(job_id, _, reason):
            yield job_id, "pending", reason
        case Cancelled(job_id, reason):
            yield job_id, "cancelled", reason
        case Suspended(job_id, by):
            yield job_id, "", f"suspended by {by}"
        case Resumed(job_id) | PriorityChanged(job_id):
            yield job_id, "", ""
        case ResizeFailed(job_id, _, _, reason):
            yield job_id, "checkpointing", reason
        case DeadlineMissed(job_id):
            yield job_id, "", "its deadline has passed"
        case Decided():
            for job_id, to in event.changes.items():
                state = "checkpointing" if to is None else "starting"
                if job_id in event.live:
                    continue
                yield job_id, state, event.reasons.get(job_id, "")
            for job_id, reason in event.rejected.items():
                yield job_id, "failed", f"rejected: {reason}"
        case Reported() | Saved() | Noticed() | PolicyChanged() | Resizable() | Resized():
            pass  # no job is in another state after these alone
        case NodeUp() | NodeDown() | LoanRecalled() | Woken() | Observed():
            pass  # no job is in another state after these alone
        case _:
            assert_never(event)
