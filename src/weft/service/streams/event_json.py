"""Events of the log as JSON, for those who may see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from weft.core.codec.plain_values import encode
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
from weft.core.model.job import JobId
from weft.runtime.loop.driver import Driver
from weft.service.access.redaction import mask_all, secrets_of
from weft.service.access.tokens import Caller


def event_json(
    driver: Driver, who: Caller, seq: int, at: float, event: Event
) -> dict[str, Any] | None:
    """An event; None for one that the caller may not see. Variables are never told."""
    seen = _seen(driver, who, event)
    if seen is None:
        return None
    body = encode(seen)
    if isinstance(seen, Submitted):
        body["job"].get("launch", {}).pop("env", None)
    body = mask_all(body, _secrets(driver, seen))
    return {"seq": seq, "at": at, "event": type(event).__name__, **body}


def _secrets(driver: Driver, event: Event) -> tuple[str, ...]:
    """What nobody is shown of the job that an event is about; decisions tell of no job's own."""
    if isinstance(event, Submitted):
        return secrets_of(event.job)
    if not isinstance(event, (Failed, StartFailed, Noticed, ResizeFailed, SleepFailed)):
        return ()
    record = driver.ledger.jobs.get(event.job)
    return () if record is None else secrets_of(record.job)


def _seen(driver: Driver, who: Caller, event: Event) -> Event | None:
    """What a caller may see of an event. A new kind of event is nobody's until it is named here."""
    match event:
        case Submitted(job):
            return event if who.sees(job) else None
        case Decided():
            return event if who.everywhere else _part(driver, who, event)
        case PolicyChanged(policy):  # rules around it name other tenants
            return event if who.admin else PolicyChanged(replace(policy, wrappers=()))
        case NodeUp() | NodeDown() | LoanRecalled() | Woken():
            return event
        case (
            Cancelled(job_id)
            | Suspended(job_id)
            | Resumed(job_id)
            | PriorityChanged(job_id)
            | Started(job_id)
            | StartFailed(job_id)
            | Stopped(job_id)
            | Finished(job_id)
            | Failed(job_id)
            | Reported(job_id)
            | Observed(job_id)
            | Saved(job_id)
            | Resizable(job_id)
            | Resized(job_id)
            | ResizeFailed(job_id)
            | Slept(job_id)
            | SleepFailed(job_id)
            | Awoke(job_id)
            | Noticed(job_id)
            | DeadlineMissed(job_id)
        ):
            return event if _visible(driver, who, job_id) else None
        case _:
            assert_never(event)


def _visible(driver: Driver, who: Caller, job: JobId) -> bool:
    record = driver.ledger.jobs.get(job)
    return record is not None and who.sees(record.job)


def _part(driver: Driver, who: Caller, event: Decided) -> Decided:
    """A decision with what it says of the caller's own jobs."""

    def own(held: Mapping[JobId, Any]) -> dict[JobId, Any]:
        return {job: value for job, value in held.items() if _visible(driver, who, job)}

    return Decided(
        event.number,
        own(event.changes),
        own(event.rejected),
        event.wake_at,
        own(event.reasons),
        blockers=own(event.blockers),
        live=tuple(own(dict.fromkeys(event.live))),
        sleeps=own(event.sleeps),
    )
