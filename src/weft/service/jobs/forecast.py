"""When waiting jobs start, simulated once for all who ask, and no more often than it is worth."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from weft.app.insight.present import Estimate, Present
from weft.core.model.job import Job, JobId

SOONEST_S = 10.0
PART = 0.02  # of the time that is spent on this, however many ask


@dataclass(frozen=True, slots=True)
class InLine:
    """A waiting job, its place in the order of expected starts, and when that is."""

    job: Job
    place: int | None
    start: Estimate


@dataclass(slots=True)
class Forecast:
    """The last simulation of the queue; `simulate` runs work beside the loop."""

    simulate: Callable[[Callable[[], list[InLine]]], Awaitable[list[InLine]]]
    number: int = 0
    _line: list[InLine] = field(default_factory=list)
    _until: float = 0.0
    _told: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, present: Callable[[], Present]) -> tuple[list[InLine], float]:
        """Waiting jobs, and in how many seconds it is worth to ask again."""
        async with self._turn:
            began = time.monotonic()
            if began >= self._until:
                now = present()
                self._line = await self.simulate(lambda: line_of(now))
                self.number += 1
                took = time.monotonic() - began
                self._until = began + max(SOONEST_S, took / PART)
            return self._line, max(self._until - time.monotonic(), 1.0)

    def told(self, whose: str, write: Callable[[], bytes]) -> bytes:
        """The answer to a tenant, written once for each simulation."""
        number, text = self._told.get(whose, (-1, b""))
        if number != self.number:
            text = write()
            self._told[whose] = self.number, text
        return text


def line_of(present: Present) -> list[InLine]:
    """Waiting jobs in the order in which simulations from here start them."""
    table = present.table
    waiting = {
        job.id: job
        for job, on in zip(table.jobs, table.allocations, strict=True)
        if on is None and job.id not in table.suspended
    }
    if not waiting:
        return []
    starts = {job: one.start for job, one in present.outlook().items() if job in waiting}
    middles = {job: one.quantile(0.5) for job, one in starts.items()}
    soonest = sorted((at, job) for job, at in middles.items() if at is not None)
    places: dict[JobId, int] = {job: i for i, (_, job) in enumerate(soonest, start=1)}
    return [InLine(job, places.get(name), starts[name]) for name, job in waiting.items()]
