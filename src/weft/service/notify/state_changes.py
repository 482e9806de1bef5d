"""State changes of jobs, from events of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from weft.core.events import event as facts
from weft.core.model.job import JobId
from weft.frozen import frozen
from weft.runtime.loop.driver import Driver
from weft.service.access.redaction import mask, secrets_of
from weft.service.jobs.job_view import name_fields
from weft.service.responses.job_row import JobName
from weft.service.responses.json_values import plain


@frozen
class Change:
    """A job is in another state than before."""

    job: JobName
    state: str
    event: str
    reason: str = ""

    def body(self) -> dict[str, Any]:
        """As it is sent."""
        job = plain(self.job)
        return {"event": self.event, "state": self.state, "reason": self.reason, "job": job}


def changes_of(driver: Driver, event: facts.Event) -> Iterator[Change]:
    """The changes that one event means."""
    for job, state, reason in _states(event):
        record = driver.ledger.jobs.get(job)
        # A job that was cancelled while it ran is not preempted once it has left.
        if record is not None and not (isinstance(event, facts.Stopped) and record.outcome):
            kind = type(event).__name__
            if isinstance(event, facts.Stopped) and record.suspended is not None:
                state = "suspended"
            state = state or driver.job(job).state
            masked = mask(reason, secrets_of(record.job))
            yield Change(JobName(**name_fields(record.job)), state, kind, masked)


def _states(event: facts.Event) -> Iterator[tuple[JobId, str, str]]:  # noqa: C901, PLR0912 - one case an event
    match event:
        case facts.Submitted(job):
            yield job.id, "pending", ""
        case facts.Started(job_id) | facts.Awoke(job_id):
            yield job_id, "running", ""
        case facts.Slept(job_id):
            yield job_id, "", "it sleeps"
        case facts.SleepFailed(job_id, _, reason):
            yield job_id, "checkpointing", reason
        case facts.Stopped(job_id):
            yield job_id, "preempted", ""
        case facts.Finished(job_id):
            yield job_id, "succeeded", ""
        case facts.Failed(job_id, _, reason, retry):
            yield job_id, "pending" if retry else "failed", reason
        case facts.StartFailed(job_id, _, reason):
            yield job_id, "pending", reason
        case facts.Cancelled(job_id, reason):
            yield job_id, "cancelled", reason
        case facts.Suspended(job_id, by):
            yield job_id, "", f"suspended by {by}"
        case facts.Resumed(job_id) | facts.PriorityChanged(job_id):
            yield job_id, "", ""
        case facts.ResizeFailed(job_id, _, _, reason):
            yield job_id, "checkpointing", reason
        case facts.DeadlineMissed(job_id):
            yield job_id, "", "its deadline has passed"
        case facts.Decided():
            for job_id, to in event.changes.items():
                state = "checkpointing" if to is None else "starting"
                if job_id in event.live:
                    continue
                yield job_id, state, event.reasons.get(job_id, "")
            for job_id, reason in event.rejected.items():
                yield job_id, "failed", f"rejected: {reason}"
        case facts.Noticed(job_id, _, "idle", text):
            yield job_id, "", text
        case (
            facts.Reported()
            | facts.Saved()
            | facts.Noticed()
            | facts.PolicyChanged()
            | facts.Resizable()
            | facts.Resized()
            | facts.NodeUp()
            | facts.NodeDown()
            | facts.LoanRecalled()
            | facts.Refitted()
            | facts.Woken()
            | facts.Observed()
            | facts.StartedAhead()
        ):
            pass  # no job is in another state after these alone
        case _:
            assert_never(event)
