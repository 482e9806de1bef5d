"""An event log that ends with the process: for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf

from weft.core.codec import readable_line
from weft.core.events import Event, names
from weft.core.model import JobId
from weft.core.took import Took


class MemoryStore:
    """Events in a list."""

    def __init__(self) -> None:
        self.appends = Took()
        self._events: list[tuple[float, Event]] = []
        self._snapshot: tuple[int, bytes] | None = None
        self._aside: dict[int, str] = {}

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        """Keep them; the number of the last."""
        for at, event in events:
            readable_line(at, event)  # as the file would refuse it
        with self.appends.measured():
            self._events.extend(events)
        return len(self._events)

    def since(self, seq: int, limit: int | None = None) -> list[tuple[int, float, Event]]:
        """Events after number `seq`."""
        rows = enumerate(self._events[seq:], start=seq + 1)
        found = ((i, at, event) for i, (at, event) in rows if i not in self._aside)
        return [*islice(found, limit)]

    def last(self) -> int:
        """The number of the last event."""
        return len(self._events)

    def set_aside(self, seq: int, why: str) -> None:
        """Pass over a row from now on."""
        self._aside[seq] = why

    def aside(self) -> dict[int, str]:
        """Rows that are passed over, and why."""
        return dict(self._aside)

    def about_job(
        self, job: JobId, limit: int, until: float | None = None
    ) -> list[tuple[int, float, Event]]:
        """The last events that name a job."""
        past = inf if until is None else until
        return [one for one in self.since(0) if names(one[2], job) and one[1] <= past][-limit:]

    def save(self, seq: int, snapshot: bytes) -> None:
        """Keep a snapshot."""
        self._snapshot = (seq, snapshot)

    def latest(self) -> tuple[int, bytes] | None:
        """The last snapshot kept."""
        return self._snapshot

    def close(self) -> None:
        """Nothing to let go of."""
