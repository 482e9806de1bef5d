"""Write any trace as our own CSV."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import TextIO

from weft.core.model.job import Job, Tier
from weft.core.model.trace import Trace, Truth
from weft.traces.formats.weft_csv import COLUMNS, NODES, TRAFFIC, write_traffic


def write(trace: Trace, path: Path) -> None:
    """Write `trace` to `path`, compressed if the name ends in `.gz`."""
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8", newline="") as stream:
            write_to(trace, stream)
    else:
        with path.open("w", encoding="utf-8", newline="") as stream:
            write_to(trace, stream)


def write_to(trace: Trace, stream: TextIO) -> None:
    """Write `trace` to an open text stream."""
    writer = csv.writer(stream, lineterminator="\n")
    absent: set[str] = set() if any(job.demand.nodes for job, _ in trace) else {NODES}
    if all(job.traffic is None for job, _ in trace):
        absent |= set(TRAFFIC)
    columns = [name for name in COLUMNS if name not in absent]
    writer.writerow(columns)
    writer.writerows([cells[name] for name in columns] for cells in map(_cells, trace))


def _cells(pair: tuple[Job, Truth]) -> dict[str, object]:
    job, truth = pair
    ask, batch = job.demand, job.batch
    return {
        "id": job.id,
        "user": job.user,
        "tenant": job.tenant,
        "submit_s": _text(job.submitted),
        "num_gpus": _text(round(ask.gpus * ask.share, 6)),
        "gpu_type": "|".join(ask.kinds),
        "duration_s": _text(truth.length),
        "state": truth.state,
        "attempts": len(truth.failures) + 1,
        "cpus": _text(job.cpus),
        "mem_gb": _text(job.mem_gb),
        "num_instances": ask.gpus if ask.share < 1 else "",
        "extra": _extra(job, truth),
        "model": job.model,
        "priority": _text(job.priority) if job.priority else "",
        "tier": "opportunistic" if job.tier is Tier.OPPORTUNISTIC else "",
        "deadline_s": _text(job.deadline),
        "app": job.app,
        "after": _after(job),
        "min_gpus": "" if ask.rigid else ask.min,
        "max_gpus": "" if ask.rigid else ask.max,
        "batch_init": batch.init if batch else "",
        "batch_max": batch.max if batch else "",
        "batch_per_gpu": batch.max_per_gpu if batch else "",
        NODES: ask.nodes or "",
        **write_traffic(job.traffic),
    }


def _after(job: Job) -> str:
    job_ids = {"ok": job.after.ok, "any": job.after.any, "not_ok": job.after.not_ok}
    return ";".join(f"{how}:{name}" for how, names in job_ids.items() for name in names)


def _extra(job: Job, truth: Truth) -> str:
    parts = [f"hint.{name}={_text(value)}" for name, value in job.hints.items()]
    if truth.failures:
        parts.append("failures=" + "/".join(map(_text, truth.failures)))
    if truth.censored:
        parts.append("censored")
    return ";".join(parts)


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if value == int(value) else repr(value)
