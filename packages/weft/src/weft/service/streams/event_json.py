"""Events of the log as JSON, for those who may see them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, assert_never

from weft.core.codec.plain_values import encode
from weft.core.events import event as facts
from weft.core.events.event import Event
from weft.core.model.job import JobId
from weft.runtime.loop.driver import Driver
from weft.service.access.redaction import mask_all, secrets_of
from weft.service.access.tokens import Caller

KEPT = 5_000


def event_json(
    driver: Driver, who: Caller, seq: int, at: float, event: facts.Event
) -> dict[str, Any] | None:
    """An event; None for one that the caller may not see. Variables are never told."""
    seen = _seen(driver, who, event)
    if seen is None:
        return None
    body = encode(seen)
    if isinstance(seen, facts.Submitted):
        body["job"].get("launch", {}).pop("env", None)
        if seen.job.plans:
            body["job"]["plans"] = [plan.text for plan in seen.job.plans]
    elif isinstance(seen, facts.Decided):
        for job, on in seen.changes.items():
            if on is not None and on.plan is not None:
                body["changes"][job]["plan"] = on.plan.text
    body = mask_all(body, _secrets(driver, seen))
    return {"seq": seq, "at": at, "event": type(event).__name__, **body}


def _secrets(driver: Driver, event: facts.Event) -> tuple[str, ...]:
    """The texts never shown of the job that an event is about; none in decisions."""
    if isinstance(event, facts.Submitted):
        return secrets_of(event.job)
    if not isinstance(
        event,
        (
            *(facts.Failed, facts.StartFailed, facts.Noticed, facts.Measured),
            *(facts.ResizeFailed, facts.SleepFailed),
        ),
    ):
        return ()
    record = driver.ledger.jobs.get(event.job)
    return () if record is None else secrets_of(record.job)


def _seen(driver: Driver, who: Caller, event: facts.Event) -> facts.Event | None:
    """The part of an event that a caller may see.

    New kinds of events are hidden until named here.
    """
    if isinstance(event, facts.OfJob):
        return event if _visible(driver, who, event.job) else None
    match event:
        case facts.Submitted(job):
            return event if who.sees(job) else None
        case facts.Decided():
            return event if who.everywhere else _part(driver, who, event)
        case facts.PolicyChanged(policy):  # rules around it name other tenants
            return event if who.admin else facts.PolicyChanged(replace(policy, wrappers=()))
        case facts.Refitted(ends):  # the model names users of all tenants, and it is long
            return facts.Refitted(ends)
        case facts.NodeUp() | facts.NodeDown() | facts.LoanRecalled() | facts.Woken():
            return event
        case _:
            assert_never(event)


def _visible(driver: Driver, who: Caller, job: JobId) -> bool:
    record = driver.ledger.jobs.get(job)
    return record is not None and who.sees(record.job)


def _part(driver: Driver, who: Caller, event: facts.Decided) -> facts.Decided:
    """A decision with what it says about the caller's own jobs."""

    def own(held: Mapping[JobId, Any]) -> dict[JobId, Any]:
        return {job: value for job, value in held.items() if _visible(driver, who, job)}

    return facts.Decided(
        event.number,
        own(event.changes),
        own(event.rejected),
        event.wake_at,
        own(event.reasons),
        blockers=own(event.blockers),
        live=tuple(own(dict.fromkeys(event.live))),
        sleeps=own(event.sleeps),
        promised=tuple(own(dict.fromkeys(event.promised))),
        memory_order=own(event.memory_order),
    )


# ---- Events as a browser's EventSource reads them, written once for all clients that see the same


class Rendered:
    """The last events as text, by what their readers may see."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, bool, str], str] = {}

    def text(self, driver: Driver, who: Caller, row: tuple[int, float, Event]) -> str:
        """One event; empty for one that the caller may not see."""
        key = (row[0], who.admin, "" if who.everywhere else who.tenant)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = _text(driver, who, row)
            if len(self._texts) > KEPT:
                del self._texts[next(iter(self._texts))]
        return text


def _text(driver: Driver, who: Caller, row: tuple[int, float, Event]) -> str:
    event = event_json(driver, who, *row)
    if event is None:
        return ""
    line = json.dumps(encode(event), separators=(",", ":"))
    return f"id: {row[0]}\nevent: {event['event']}\ndata: {line}\n\n"
