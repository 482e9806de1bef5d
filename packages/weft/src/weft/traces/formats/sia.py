"""Workload CSV of Pollux and Sia, and the LLM workloads of Rubick in a similar shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.core.model.job import BatchRange, Demand, Job, JobId
from weft.core.model.trace import Truth
from weft.frozen import frozen
from weft.traces.draft import Format, Pair, TraceDraft, check_one_set, demand, recorded
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

SIA = frozenset({"name", "time", "application", "num_replicas"})
RUBICK = frozenset({"name", "submission_time", "duration", "application", "num_gpus"})
COUNTS = (1, 4, 8, 16, 24)
MAX_GPUS = 64


def is_sia(sample: FileSample) -> bool:
    """An application and replicas, no duration."""
    return sample.header >= SIA


def is_rubick(sample: FileSample) -> bool:
    """An application, GPUs and a duration."""
    return sample.header >= RUBICK


def load_sia(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """Adaptive jobs: the requested GPUs are a wish, 1 to 64 will do. Lengths are reference ones.

    Columns `set` and `workload` of a combined file are chosen with `subset`, as `philly/1`.
    """
    draft = TraceDraft(cluster="sia-hetero")
    sets: set[str] = set()
    for file in files:
        table = TraceTable(file)
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


def load_rubick(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """LLM jobs with durations; SLA jobs have priority 1."""
    draft = TraceDraft(cluster="8x8:a800")
    for file in files:
        table = TraceTable(file)
        draft.pairs += (_rubick_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


def elastic(gpus: int) -> Demand:
    """A wish for `gpus` that any count up to the workload's limit can answer."""
    return Demand(gpus, 1, max(gpus, MAX_GPUS))


def _sia_job(table: TraceTable, row: list[str], prefix: str) -> Pair:
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


def _rubick_job(table: TraceTable, row: list[str]) -> Pair:
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
    "sia-csv", "workload CSV of Pollux (Qiao et al., OSDI'21) and Sia (SOSP'23)", is_sia, load_sia
)
RUBICK_FORMAT = Format(
    "rubick-csv", "LLM workloads of Rubick (Zhang et al., MLSys'25)", is_rubick, load_rubick
)


# ---- Models of the Pollux and Sia workloads: batch ranges and reference lengths
#
# Facts from the public artifact of Sia (Jayaram Subramanya et al., SOSP'23), which extends that
# of Pollux (Qiao et al., OSDI'21): seconds to train alone on 1, 4, 8, 16 and 24 RTX 2080 Ti GPUs,
# the kind on which the requested sizes of those workloads were tuned, with the batch size
# adapted.


@frozen
class Model:
    """Training time of a model, its batches, and the requests of its users (GPUs, batch)."""

    seconds: tuple[float, ...]
    batch: BatchRange
    tuned: tuple[tuple[int, int], ...]


MODELS: Mapping[str, Model] = {
    "cifar10": Model(
        (3365.0, 1030.0, 667.0, 565.0, 528.0),
        BatchRange(128, 4096, 1024),
        ((4, 2048), (6, 2048), (8, 2048), (8, 4096), (10, 4096), (12, 4096), (16, 4096)),
    ),
    "deepspeech2": Model(
        (13401.0, 4166.0, 2647.0, 1677.0, 1557.0),
        BatchRange(20, 640, 80),
        ((6, 320), (8, 320), (12, 640)),
    ),
    "bert": Model(
        (8044.0, 2222.0, 1395.0, 987.0, 936.0),
        BatchRange(12, 384, 12),
        ((6, 384), (8, 384), (12, 384), (16, 384)),
    ),
    "yolov3": Model(
        (73417.0, 20728.0, 11694.0, 8449.0, 7653.0), BatchRange(8, 512, 16), ((4, 64),)
    ),
    "imagenet": Model(
        (320730.0, 87845.0, 50895.0, 28619.0, 21115.0),
        BatchRange(200, 12800, 200),
        ((10, 1600), (12, 3200), (14, 3200)),
    ),
}


def length(model: str, gpus: int) -> float:
    """Seconds on `gpus` reference GPUs, log-linear between measurements."""
    known = MODELS[model].seconds
    return round(float(np.exp(np.interp(np.log(gpus), np.log(COUNTS), np.log(known)))), 3)
