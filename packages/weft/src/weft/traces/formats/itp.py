"""Microsoft ITP clusters, and the ElasticFlow traces derived from them and from Philly."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft, demand, recorded
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable, date_of, seconds

RAW = frozenset({"job_id", "submission_time", "duration", "num_gpu"})
ORIGIN = date_of(seconds("2021-03-04"))
ROWS = 69_351


def is_itp(sample: FileSample) -> bool:
    """The four raw columns, perhaps with a cluster."""
    return sample.header >= RAW and not is_elasticflow(sample)


def is_elasticflow(sample: FileSample) -> bool:
    """Deadlines and models."""
    return sample.header >= {"job_id", "num_gpu", "model_name", "duration"} and bool(
        sample.header & {"deadline", "ddl"}
    )


def load_itp(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """`clusterNN.csv` files, or one file with a `cluster` column; `options.cluster` picks one."""
    draft = TraceDraft(origin=ORIGIN, published=0 if options.cluster else ROWS)
    for file in files:
        table = TraceTable(file)
        column = table.maybe("cluster")
        alone = file.name.split(".")[0]
        at = [table.index(n) for n in ("job_id", "submission_time", "num_gpu", "duration")]
        for row in table:
            name = f"cluster{row[column].zfill(2)}" if column >= 0 else alone
            if options.cluster and options.cluster not in (name, row[column]):
                draft.dropped["cluster"] += 1
            else:
                draft.pairs.append(_raw_job(table, row, at, name))
        draft.rows += table.rows
    return draft


def load_elasticflow(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Jobs with a model, iterations, a batch size and a deadline."""
    draft = TraceDraft()
    for file in files:
        table = TraceTable(file)
        draft.pairs += (_elastic_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


def _raw_job(table: TraceTable, row: list[str], at: list[int], cluster: str) -> Pair:
    name, when, gpus, length = at
    job = Job(
        JobId(row[name]), table.number(row, when), demand(table.count(row, gpus)), tenant=cluster
    )
    return job, Truth(table.number(row, length))


def _elastic_job(table: TraceTable, row: list[str]) -> Pair:
    effort = table.maybe("best_effort")
    firm = effort < 0 or not table.count(row, effort)
    batch = table.optional(row, table.maybe("batch_size"))
    job = Job(
        JobId(row[table.index("job_id")]),
        table.number(row, table.index("submission_time", "submit_time")),
        demand(table.count(row, table.index("num_gpu"))),
        model=table.text(row, table.index("model_name")),
        deadline=table.optional(row, table.index("deadline", "ddl")) if firm else None,
        hints={} if batch is None else {"batch": batch},
    )
    return job, recorded(table, row)


ITP = Format("itp-csv", "raw traces of Microsoft ITP (Gu et al., ASPLOS'23)", is_itp, load_itp)
ELASTICFLOW = Format(
    "elasticflow-csv",
    "traces with deadlines of ElasticFlow (Gu et al., ASPLOS'23)",
    is_elasticflow,
    load_elasticflow,
)
