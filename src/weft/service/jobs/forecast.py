"""When waiting jobs start, simulated once for all who ask, and no more often than it is worth."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from weft.app.insight.present import Estimate, Present
from weft.app.insight.purse import Purse
from weft.core.model.job import Job, JobId
from weft.frozen import frozen
from weft.service.budget.aside import Aside
from weft.service.http.json_body import write_json
from weft.service.responses.watch import Waiting

SOONEST_S = 10.0
PART = 0.02  # of the time that is spent on this, however many ask
CPU_S = 30.0  # what is not simulated by then has no place in line
ALL_TENANTS = ""


@frozen
class InLine:
    """A waiting job, its place in the order of expected starts, and when that is."""

    job: Job
    place: int | None
    start: Estimate


@dataclass(slots=True)
class Forecast:
    """The last simulation of the queue, as JSON by tenant."""

    aside: Aside
    _answers: Mapping[str, bytes] = field(default_factory=dict)
    _until: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, whose: str, present: Callable[[], Present]) -> tuple[bytes, float]:
        """Waiting jobs of a tenant as JSON, and in how many seconds it is worth to ask again."""
        async with self._turn:
            began = time.monotonic()
            if began >= self._until:
                now = present()
                self._answers = await self.aside.do(lambda: partial(write_line, CPU_S, now))
                took = time.monotonic() - began
                self._until = began + max(SOONEST_S, took / PART)
            return self._answers.get(whose, b"[]"), max(self._until - time.monotonic(), 1.0)


def write_line(cpu_s: float, present: Present, _report: Callable[[Any], None]) -> dict[str, bytes]:
    """The queue as JSON by tenant, and whole for ALL_TENANTS: ready to be sent."""
    rows: defaultdict[str, list[Waiting]] = defaultdict(list)
    for line in line_of(present, Purse(cpu_s)):
        row = Waiting(
            id=line.job.id,
            place=line.place,
            p10=line.start.quantile(0.1),
            p50=line.start.quantile(0.5),
            p90=line.start.quantile(0.9),
        )
        rows[ALL_TENANTS].append(row)
        rows[line.job.tenant].append(row)
    return {tenant: write_json(some) for tenant, some in rows.items()}


def line_of(present: Present, purse: Purse) -> list[InLine]:
    """Waiting jobs in the order in which simulations from here start them."""
    table = present.table
    waiting = {
        job.id: job
        for job, on in zip(table.jobs, table.allocations, strict=True)
        if on is None and job.id not in table.suspended
    }
    if not waiting:
        return []
    outlook = present.look_ahead(purse=purse).outlook
    starts = {job: outcome.start for job, outcome in outlook.items() if job in waiting}
    middles = {job: estimate.quantile(0.5) for job, estimate in starts.items()}
    soonest = sorted((at, job) for job, at in middles.items() if at is not None)
    places: dict[JobId, int] = {job: i for i, (_, job) in enumerate(soonest, start=1)}
    return [InLine(job, places.get(name), starts[name]) for name, job in waiting.items()]
