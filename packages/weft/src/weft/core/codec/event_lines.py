"""Values to JSON and back, by their types: event logs, saved plans and policy memory.

Fields at their default are left out, so that logs stay small and old logs stay readable.
"""

from __future__ import annotations

import json
from typing import Any

from weft.core.codec.log_schema import RETIRED, find_unknown
from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig, NewerEvent, UnreadableEvent, WeftError
from weft.core.events.event import EVENTS, Event, Reported
from weft.core.events.report import Report

_BY_NAME = {kind.__name__: kind for kind in EVENTS}


def event_line(at: float, event: Event) -> str:
    """Write an event as one line of a log."""
    body = encode(event)
    return json.dumps({"at": at, "event": type(event).__name__, **body}, separators=(",", ":"))


def readable_line(at: float, event: Event) -> str:
    """The line of an event; UnreadableEvent unless reading it gives an equal event."""
    try:
        line = event_line(at, event)
        same = read_event(line) == (at, event)
    except (WeftError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableEvent(f"{event!r:.200} cannot be written down: {error}") from error
    if not same:
        raise UnreadableEvent(f"{event!r:.200} cannot be read back unchanged")
    return line


def read_event(line: str) -> tuple[float, Event]:
    """The event that `event_line` wrote; NewerEvent if a newer version did, else InvalidConfig."""
    try:
        return _read_event(json.loads(line))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        if unknown := _unknown_in(line):
            raise NewerEvent(
                f"{line[:200]!r} has {', '.join(unknown)}, which this version does not know",
                hint="a newer version wrote it",
            ) from error
        raise InvalidConfig(f"{line[:200]!r} is no event: {error!r}") from error


def _unknown_in(line: str) -> list[str]:
    try:
        record = json.loads(line)
        float(record["at"])
        return find_unknown(record) if isinstance(record["event"], str) else []
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # no event of any version


def _read_event(record: dict[str, Any]) -> tuple[float, Event]:
    at, name = float(record.pop("at")), record.pop("event")
    if "values" in record and _BY_NAME[name] is Reported:
        record["report"] = Report.read(record.pop("values"), old=True).values()
    for gone in RETIRED.get(name, ()):
        record.pop(gone, None)
    event: Event = decode(_BY_NAME[name], record)
    return at, event
