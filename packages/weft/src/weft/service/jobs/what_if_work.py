"""What-ifs and the queue's forecast, worked out in another process and ready to be sent."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from weft.app.insight.cpu_budget import CpuBudget
from weft.app.insight.history import ObservedSpeeds
from weft.app.insight.never_starts import count_never
from weft.app.insight.present import OUTLOOKS, Estimate, Present, QueueOutlook
from weft.app.insight.what_if import HOUR, Variant, WhatIfChanges, what_if
from weft.app.serve.rules import Quotas
from weft.core.model.job import Job, JobId, name_of
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen
from weft.runtime.records.job_records import JobRecord
from weft.service.access.tokens import Caller
from weft.service.budget.aside import Aside
from weft.service.http.replies import write_json
from weft.service.responses.answers import Comparison, Outlook, Start
from weft.service.responses.watch import (
    Progress,
    Sides,
    Waiting,
    WhatIfLine,
    describe_forks,
    describe_runs,
    metric_columns,
    tell_never,
)

Report = Callable[[Any], None]


@frozen
class WrittenComparison:
    """A comparison as JSON, and as the last line of a stream, with both sides in detail."""

    comparison: bytes
    line: bytes


def compare_past(
    cpu_s: float,
    records: Sequence[JobRecord],
    variants: Mapping[str, Variant],
    now: float,
    hours: float | None,
    speeds: ObservedSpeeds,
    remark: str,
    report: Report,
) -> WrittenComparison:
    """The past, as it was decided and with a change; `remark` ends the note."""
    compared = what_if(
        records,
        variants,
        now,
        hours=hours,
        speeds=speeds,
        cpu_s=cpu_s,
        progress=lambda label, part: report(Progress(label=label, part=part)),
    )
    comparison = Comparison(
        policies={name: dict(values) for name, values in compared.policies.items()},
        jobs=compared.jobs,
        hours=compared.hours,
        note=compared.note + remark,
        never=tell_never(compared.never),
        complete=compared.complete,
    )
    return _write(comparison, describe_runs(compared.outcomes))


def compare_ahead(
    cpu_s: float,
    present: Present,
    change: WhatIfChanges,
    policy: PartSpec,
    rules: Quotas,
    who: Caller,
    report: Report,
) -> WrittenComparison:
    """From now on: when the caller's jobs start and end, as things are and with the change."""
    sides = {
        policy.text: present,
        change.label(policy.text): change.present(present, policy, rules),
    }
    both = {
        label: side.look_ahead(
            progress=lambda part, label=label: report(Progress(label=label, part=part)),  # type: ignore[misc]
            budget=CpuBudget(cpu_s / len(sides)),
            decisions=sys.maxsize,
        )
        for label, side in sides.items()
    }
    return _compare_forks(present, who, both)


def _compare_forks(
    present: Present, who: Caller, both: dict[str, QueueOutlook]
) -> WrittenComparison:
    before, *_, after = [ahead.outlook for ahead in (*both.values(), *both.values())]
    held = present.table.suspended  # they go nowhere, whatever is different
    jobs = {job.id: job for job in present.table.jobs if job.id not in held}
    looks = [
        Outlook(
            id=name,
            name=name_of(jobs[name]),
            start=answer_start(before[name].start),
            start_then=answer_start(after[name].start),
            end=answer_start(before[name].end),
            end_then=answer_start(after[name].end),
        )
        for name in before
        if name in jobs and who.sees(jobs[name])
    ]
    aheads = [[ahead.outlook[job] for job in jobs] for ahead in both.values()]
    starts = _means_h([[_middle(outlook.start) for outlook in ahead] for ahead in aheads])
    ends = _means_h([[_middle(outlook.end) for outlook in ahead] for ahead in aheads])
    means = {
        label: {"avg_start_h": start, "avg_end_h": end}
        for label, start, end in zip(both, starts, ends, strict=True)
    }
    note = f"{len(jobs)} jobs simulated from now on; speeds as they reported, else by GPUs"
    note += (left_out := _say_left_out(jobs, both))
    if held:
        note += f"; suspended and left out: {len(held)}"
    seen = {name: job for name, job in jobs.items() if who.sees(job)}
    never = {
        label: count_never({job: why for job, why in ahead.never.items() if job in seen})
        for label, ahead in both.items()
    }
    comparison = Comparison(
        policies=means,
        jobs=len(jobs),
        hours=0.0,
        note=note,
        outlook=looks,
        never=tell_never(never),
        complete=not left_out,
    )
    return _write(comparison, describe_forks(both, seen, present.now))


def _say_left_out(jobs: Collection[JobId], both: Mapping[str, QueueOutlook]) -> str:
    """Say what there was no CPU time for: simulations, and jobs that start too far ahead."""
    starts = [ahead.outlook[job].start for ahead in both.values() for job in jobs]
    times = min((len(start.after) for start in starts), default=OUTLOOKS)
    late = max(
        sum(_middle(ahead.outlook[job].start) is None for job in jobs if job not in ahead.never)
        for ahead in both.values()
    )
    note = f"; {times} of {OUTLOOKS} simulations were made" if times < OUTLOOKS else ""
    if late:
        note += f"; {late} jobs start further ahead than was simulated, averages are of the others"
    return note


def answer_start(estimate: Estimate | None) -> Start | None:
    """An estimate as it is answered."""
    if estimate is not None and estimate.unknown:
        return Start(p10=None, p50=None, p90=None, simulations=0, unknown=estimate.unknown)
    if estimate is None or all(seconds is None for seconds in estimate.after):
        return None  # too far away to be simulated
    return Start(
        p10=estimate.quantile(0.1),
        p50=estimate.quantile(0.5),
        p90=estimate.quantile(0.9),
        simulations=0 if estimate.counted else len(estimate.after),
    )


def _write(comparison: Comparison, sides: dict[str, Sides]) -> WrittenComparison:
    line = WhatIfLine(result=comparison, metrics=metric_columns(), sides=sides)
    return WrittenComparison(write_json(comparison), write_json(line))


def _middle(estimate: Estimate) -> float | None:
    return estimate.quantile(0.5)


def _means_h(sides: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The mean of each side over the jobs that every side came to; None where there are none."""
    known = [[after for after in job if after is not None] for job in zip(*sides, strict=True)]
    came = [job for job in known if len(job) == len(sides)]
    columns = zip(*came, strict=True) if came else [()] * len(sides)
    return [sum(column) / len(column) / HOUR if column else None for column in columns]


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
class QueueForecast:
    """The last simulation of the queue, as JSON by tenant."""

    aside: Aside
    _answers: Mapping[str, bytes] = field(default_factory=dict)
    _unknown: str = ""
    _until: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def forecast_tenant(
        self, whose: str, present: Callable[[], Present]
    ) -> tuple[bytes, float, str]:
        """Waiting jobs of a tenant as JSON, in how many seconds to ask again, why none is known."""
        async with self._turn:
            began = time.monotonic()
            if began >= self._until:
                now = present()
                work = partial(write_line, CPU_S, now)
                self._answers, self._unknown = await self.aside.do(lambda: work)
                took = time.monotonic() - began
                self._until = began + max(SOONEST_S, took / PART)
            again_s = max(self._until - time.monotonic(), 1.0)
            return self._answers.get(whose, b"[]"), again_s, self._unknown


def write_line(
    cpu_s: float, present: Present, _report: Callable[[Any], None]
) -> tuple[dict[str, bytes], str]:
    """The queue as JSON by tenant, and whole for ALL_TENANTS; and why no start is known."""
    rows: defaultdict[str, list[Waiting]] = defaultdict(list)
    unknown = present.unknown_start()
    for line in line_of(present, CpuBudget(cpu_s)):
        start = Estimate((None,)) if unknown else line.start
        row = Waiting(
            id=line.job.id,
            place=line.place,
            p10=start.quantile(0.1),
            p50=start.quantile(0.5),
            p90=start.quantile(0.9),
        )
        rows[ALL_TENANTS].append(row)
        rows[line.job.tenant].append(row)
    return {tenant: write_json(some) for tenant, some in rows.items()}, unknown


def line_of(present: Present, budget: CpuBudget) -> list[InLine]:
    """Waiting jobs in the order in which simulations from here start them."""
    table = present.table
    waiting = {
        job.id: job
        for job, on in zip(table.jobs, table.allocations, strict=True)
        if on is None and job.id not in table.suspended
    }
    if not waiting:
        return []
    outlook = present.look_ahead(budget=budget).outlook
    starts = {job: outcome.start for job, outcome in outlook.items() if job in waiting}
    middles = {job: estimate.quantile(0.5) for job, estimate in starts.items()}
    soonest = sorted((at, job) for job, at in middles.items() if at is not None)
    places: dict[JobId, int] = {job: i for i, (_, job) in enumerate(soonest, start=1)}
    return [InLine(job, places.get(name), starts[name]) for name, job in waiting.items()]
