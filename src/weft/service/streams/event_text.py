"""Events as a browser's EventSource reads them, written once for all clients that see the same."""

from __future__ import annotations

import json

from weft.core.codec.plain_values import encode
from weft.core.events.event import Event
from weft.runtime.loop.driver import Driver
from weft.service.access.tokens import Caller
from weft.service.streams.event_json import event_json

KEPT = 5_000


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
