"""Workload CSV of Pollux and Sia, and the LLM workloads of Rubick in a similar shape."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Draft, Format, Pair, check_one_set, demand, recorded
from weft.traces.formats.sia_models import MAX_GPUS, MODELS, length
from weft.traces.options import Options
from weft.traces.source import Member, Sample
from weft.traces.table import Table

SIA = frozenset({"name", "time", "application", "num_replicas"})
RUBICK = frozenset({"name", "submission_time", "duration", "application", "num_gpus"})


def is_sia(sample: Sample) -> bool:
    """An application and replicas, no duration."""
    return sample.header >= SIA


def is_rubick(sample: Sample) -> bool:
    """An application, GPUs and a duration."""
    return sample.header >= RUBICK


def load_sia(files: Sequence[Member], options: Options) -> Draft:
    """Adaptive jobs: the requested GPUs are a wish, 1 to 64 will do. Lengths are reference ones.

    Columns `set` and `workload` of a combined file are chosen with `subset`, as `philly/1`.
    """
    draft = Draft(cluster="sia-hetero")
    sets: set[str] = set()
    for file in files:
        table = Table(file)
        parts = [at for at in (table.maybe("set"), table.maybe("workload")) if at >= 0]
        for row in table:
            name = "/".join(row[at] for at in parts)
            sets.add(name)
            if options.subset and name != options.subset:
                draft.dropped["subset"] += 1
            else:
                draft.pairs.append(_sia_job(table, row, "" if options.subset else name))
        draft.rows += table.rows
    if not options.subset:
        check_one_set(files[0].path, sets)
    return draft


def load_rubick(files: Sequence[Member], _: Options) -> Draft:
    """LLM jobs with durations; SLA jobs have priority 1."""
    draft = Draft(cluster="8x8:a800")
    for file in files:
        table = Table(file)
        draft.pairs += (_rubick_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


def elastic(gpus: int) -> Demand:
    """A wish for `gpus` that any count up to the workload's limit can answer."""
    return Demand(gpus, 1, max(gpus, MAX_GPUS))


def _sia_job(table: Table, row: list[str], prefix: str) -> Pair:
    column = table.index("application")
    model = row[column]
    if model not in MODELS:
        raise table.wrong(
            row,
            column,
            f"one of {', '.join(MODELS)}",
            hint="the file has no durations; convert it to weft-csv with your own",
        )
    gpus = int(table.count(row, table.index("num_replicas"))) or 1
    batch = table.optional(row, table.maybe("batch_size"))
    name = row[table.index("name")]
    job = Job(
        JobId(f"{prefix}/{name}" if prefix else name),
        table.number(row, table.index("time")),
        elastic(gpus),
        model=model,
        batch=MODELS[model].batch,
        hints={} if batch is None else {"batch": batch},
    )
    return job, Truth(length(model, gpus))


def _rubick_job(table: Table, row: list[str]) -> Pair:
    sla = table.maybe("is_sla")
    job = Job(
        JobId(row[table.index("name")]),
        table.number(row, table.index("submission_time")),
        demand(table.count(row, table.index("num_gpus"))),
        model=row[table.index("application")],
        priority=table.count(row, sla) if sla >= 0 else 0.0,
        cpus=table.optional(row, table.maybe("num_cpus")),
    )
    return job, recorded(table, row)


SIA_FORMAT = Format(
    "sia-csv",
    "workload CSV of Pollux (Qiao et al., OSDI'21) and Sia (SOSP'23)",
    is_sia,
    load_sia,
)
RUBICK_FORMAT = Format(
    "rubick-csv", "LLM workloads of Rubick (Zhang et al., MLSys'25)", is_rubick, load_rubick
)
