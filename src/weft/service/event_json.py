"""Events of the log as JSON, for those who may see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.app.serve.live import Driver
from weft.core.codec import encode
from weft.core.events import Decided, Event, OfJob, PolicyChanged, Submitted
from weft.core.model import JobId
from weft.service.auth import Caller


def event_json(
    driver: Driver, who: Caller, seq: int, at: float, event: Event
) -> dict[str, Any] | None:
    """An event; None for one that the caller may not see. Variables are never told."""
    head = {"seq": seq, "at": at, "event": type(event).__name__}
    if isinstance(event, Decided):
        return {**head, **encode(event if who.everywhere else _part(driver, who, event))}
    if isinstance(event, Submitted):
        if not who.sees(event.job):
            return None
        body = encode(event)
        body["job"].get("launch", {}).pop("env", None)
        return {**head, **body}
    if isinstance(event, PolicyChanged) and not who.admin:
        inner = replace(event.policy, wrappers=())  # rules around it name other tenants
        return {**head, **encode(PolicyChanged(inner))}
    if isinstance(event, OfJob) and not _visible(driver, who, event.job):
        return None
    return {**head, **encode(event)}


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
    )
