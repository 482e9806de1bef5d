"""Values to JSON and back, by their types: event logs, saved plans and policy memory.

Fields at their default are left out, so that logs stay small and old logs stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weft.core.codec.plain_values import decode, encode
from weft.core.errors import InvalidConfig, UnreadableEvent, WeftError
from weft.core.events.event import EVENTS, Event, Reported
from weft.core.events.report import Report

# Fields that older logs have and nothing reads any more.
RETIRED: Mapping[str, frozenset[str]] = {"Decided": frozenset({"asleep"})}
_BY_NAME = {kind.__name__: kind for kind in EVENTS}


def event_line(at: float, event: Event) -> str:
    """One line of an event log."""
    body = encode(event)
    return json.dumps({"at": at, "event": type(event).__name__, **body}, separators=(",", ":"))


def readable_line(at: float, event: Event) -> str:
    """The line of an event; UnreadableEvent unless reading it gives the same event."""
    try:
        line = event_line(at, event)
        same = read_event(line) == (at, event)
    except (WeftError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableEvent(f"{event!r:.200} cannot be written down: {error}") from error
    if not same:
        raise UnreadableEvent(f"{event!r:.200} cannot be read back unchanged")
    return line


def read_event(line: str) -> tuple[float, Event]:
    """What `event_line` wrote; InvalidConfig for anything else."""
    try:
        return _read_event(json.loads(line))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InvalidConfig(f"{line[:200]!r} is no event: {error!r}") from error


def _read_event(record: dict[str, Any]) -> tuple[float, Event]:
    at, name = float(record.pop("at")), record.pop("event")
    if name not in _BY_NAME:
        raise InvalidConfig(f"no event is called {name!r}", hint="the log is of a newer version?")
    for gone in RETIRED.get(name, ()):
        record.pop(gone, None)
    if "values" in record and _BY_NAME[name] is Reported:
        record["report"] = Report.read(record.pop("values"), old=True).values()
    event: Event = decode(_BY_NAME[name], record)
    return at, event
