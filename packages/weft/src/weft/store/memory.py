"""An event log that ends with the process: for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from math import inf

from weft.core.codec.event_lines import readable_line
from weft.core.events.event import Event, names
from weft.core.latency import Latency
from weft.core.model.job import JobId
from weft.core.state.ended_jobs import EndedInMemory


class MemoryStore:
    """Events in a list."""

    def __init__(self) -> None:
        self.appends = Latency()
        self.ended = EndedInMemory()
        self._events: list[tuple[float, Event]] = []
        self._snapshot: tuple[int, bytes] | None = None
        self._aside: dict[int, str] = {}
        self._bases: dict[int, tuple[float, bytes]] = {}
        self._cut = 0

    def append(self, events: Sequence[tuple[float, Event]]) -> int:
        for at, event in events:
            readable_line(at, event)  # as the file would refuse it
        with self.appends.measured():
            self._events.extend(events)
        return len(self._events)

    def since(self, seq: int, limit: int | None = None) -> list[tuple[int, float, Event]]:
        seq = max(seq, self._cut)
        rows = enumerate(self._events[seq:], start=seq + 1)
        kept = ((i, at, event) for i, (at, event) in rows if i not in self._aside)
        return [*islice(kept, limit)]

    def last_seq(self) -> int:
        return len(self._events)

    def set_aside(self, seq: int, why: str) -> None:
        """Pass over a row from now on."""
        self._aside[seq] = why

    def unreadable_rows(self) -> dict[int, str]:
        return dict(self._aside)

    def about_job(
        self, job: JobId, limit: int, until: float | None = None, without: Collection[type] = ()
    ) -> list[tuple[int, float, Event]]:
        past = inf if until is None else until
        rows = [row for row in self.since(0) if names(row[2], job) and row[1] <= past]
        return [row for row in rows if not isinstance(row[2], tuple(without))][-limit:]

    def save(self, seq: int, snapshot: bytes) -> None:
        self._snapshot = (seq, snapshot)

    def latest_snapshot(self) -> tuple[int, bytes] | None:
        return self._snapshot

    def keep_base(self, seq: int, at: float, base: bytes) -> None:
        self._bases[seq] = (at, base)

    def list_bases(self) -> list[tuple[int, float]]:
        return [(seq, at) for seq, (at, _) in sorted(self._bases.items())]

    def latest_base(self) -> tuple[int, bytes] | None:
        return None if not self._cut else (self._cut, self._bases[self._cut][1])

    def compact(self, seq: int) -> None:
        self._cut = seq
        self._bases = {base: kept for base, kept in self._bases.items() if base >= seq}

    def renew_lease(self) -> None:
        """No other process can take it."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
