"""What a what-if comes to, worked out aside and written there: all that is left is to send it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.app.insight.changes import Changes
from weft.app.insight.history import Speeds
from weft.app.insight.never_starts import count_never
from weft.app.insight.present import Ahead, Estimate, Present
from weft.app.insight.purse import Purse
from weft.app.insight.what_if import HOUR, Variant, what_if
from weft.app.serve.rules import Quotas
from weft.core.model.job import name_of
from weft.core.spec.part_spec import PartSpec
from weft.runtime.records.job_records import JobRecord
from weft.service.access.tokens import Caller
from weft.service.http.json_body import write_json
from weft.service.responses.answers import Comparison, Outlook, Start
from weft.service.responses.what_if import (
    Progress,
    Sides,
    WhatIfLine,
    describe_forks,
    describe_runs,
    metric_columns,
    tell_never,
)

Report = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Written:
    """A comparison as JSON, and as the last line of a stream, with both sides in detail."""

    comparison: bytes
    line: bytes


def compare_past(
    records: Sequence[JobRecord],
    variants: Mapping[str, Variant],
    now: float,
    hours: float | None,
    speeds: Speeds,
    report: Report,
) -> Written:
    """The past, as it was decided and with a change."""
    compared = what_if(
        records,
        variants,
        now,
        hours=hours,
        speeds=speeds,
        progress=lambda label, part: report(Progress(label=label, part=part)),
    )
    comparison = Comparison(
        policies={name: dict(values) for name, values in compared.policies.items()},
        jobs=compared.jobs,
        hours=compared.hours,
        note=compared.note,
        never=tell_never(compared.never),
    )
    return _write(comparison, describe_runs(compared.outcomes))


def compare_ahead(
    cpu_s: float,
    present: Present,
    change: Changes,
    policy: PartSpec,
    rules: Quotas,
    who: Caller,
    report: Report,
) -> Written:
    """From now on: when the caller's jobs start and end, as things are and with the change."""
    sides = {
        policy.text: present,
        change.label(policy.text): change.present(present, policy, rules),
    }
    both = {
        label: side.look_ahead(
            progress=lambda part, label=label: report(Progress(label=label, part=part)),  # type: ignore[misc]
            purse=Purse(cpu_s / len(sides)),
        )
        for label, side in sides.items()
    }
    return _compare_forks(present, who, both)


def _compare_forks(present: Present, who: Caller, both: dict[str, Ahead]) -> Written:
    before, *_, after = [ahead.outlook for ahead in (*both.values(), *both.values())]
    held = present.table.suspended  # they go nowhere, whatever is different
    jobs = {job.id: job for job in present.table.jobs if job.id not in held}
    looks = [
        Outlook(
            id=name,
            name=name_of(jobs[name]),
            start=start_of(before[name].start),
            start_then=start_of(after[name].start),
            end=start_of(before[name].end),
            end_then=start_of(after[name].end),
        )
        for name in before
        if name in jobs and who.sees(jobs[name])
    ]
    means = {
        label: {
            "avg_start_h": _mean_h([ahead.outlook[job].start for job in jobs]),
            "avg_end_h": _mean_h([ahead.outlook[job].end for job in jobs]),
        }
        for label, ahead in both.items()
    }
    note = f"{len(jobs)} jobs simulated from now on; speeds as they reported, else by GPUs"
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
    )
    return _write(comparison, describe_forks(both, seen, present.now))


def start_of(estimate: Estimate | None) -> Start | None:
    """An estimate as it is told."""
    if estimate is None or all(seconds is None for seconds in estimate.after):
        return None  # too far away to be simulated
    return Start(
        p10=estimate.quantile(0.1),
        p50=estimate.quantile(0.5),
        p90=estimate.quantile(0.9),
        simulations=len(estimate.after),
    )


def _write(comparison: Comparison, sides: dict[str, Sides]) -> Written:
    line = WhatIfLine(result=comparison, metrics=metric_columns(), sides=sides)
    return Written(write_json(comparison), write_json(line))


def _mean_h(estimates: list[Estimate]) -> float | None:
    """The mean over jobs of the median over simulations; None where not all came to it."""
    middles = [estimate.quantile(0.5) for estimate in estimates]
    known = [middle for middle in middles if middle is not None]
    return sum(known) / len(known) / HOUR if known and len(known) == len(middles) else None
