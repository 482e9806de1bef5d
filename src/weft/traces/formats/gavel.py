"""Tab-separated traces of Gavel, of 7 and 10 columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Draft, Format, Pair, demand
from weft.traces.formats.gavel_rates import STEPS_PER_S, steps_per_s
from weft.traces.options import Options
from weft.traces.source import Member, Sample
from weft.traces.table import Table

START = ("job_type", "command")
OLD = (*START, "steps_flag", "needs_data", "total_steps", "arrival", "scale_factor")
BASE = (*START, "working_dir", "steps_flag", "needs_data", "total_steps", "scale_factor")
NEW = (*BASE, "priority_weight", "slo", "arrival")
GAVEL_CLUSTER = "9x4:v100+9x4:p100+9x4:k80"


def is_gavel(sample: Sample) -> bool:
    """Seven or ten tab-separated columns that begin with a job type and a command."""
    return count_columns(sample) in (len(OLD), len(NEW))


def load_gavel(files: Sequence[Member], _: Options) -> Draft:
    """Length is steps over the V100 rate of the job type; the steps themselves are a hint."""
    draft = Draft(cluster=GAVEL_CLUSTER)
    for file in files:
        width = len(file.sample().cells(0, "\t"))
        table = Table(file, names=OLD if width == len(OLD) else NEW, delimiter="\t")
        draft.pairs += (_gavel_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


def batch_of(job_type: str) -> dict[str, float]:
    """The batch size in a job type such as `LM (batch size 10)`, as a hint."""
    match = re.search(r"\(batch size (\d+)\)", job_type)
    return {"batch": float(match[1])} if match else {}


def count_columns(sample: Sample) -> int:
    """Tab-separated cells of the first line, 0 if it does not name a job type and a command."""
    cells = sample.cells(0, "\t")
    return len(cells) if len(cells) > 2 and "python" in cells[1] else 0


def _gavel_job(table: Table, row: list[str]) -> Pair:
    job_type, gpus = _type(table, row), read_gang(table, row)
    steps = table.number(row, table.index("total_steps"))
    length = steps / steps_per_s(job_type, gpus)
    return read_job(table, row, length, {"steps": steps}), Truth(length)


def read_job(table: Table, row: list[str], length: float, hints: dict[str, float]) -> Job:
    """A row of any of these traces."""
    arrival = table.number(row, table.index("arrival"))
    slack = table.number(row, table.maybe("slo"))
    return Job(
        JobId(f"job-{table.rows - 1}"),
        arrival,
        demand(read_gang(table, row)),
        model=row[0],
        priority=table.optional(row, table.maybe("priority_weight")) or 1.0,
        deadline=arrival + slack * length if slack > 0 else None,
        hints={**batch_of(row[0]), **hints},
    )


def read_gang(table: Table, row: list[str]) -> int:
    """GPUs of a row."""
    column = table.index("scale_factor")
    gpus = table.count(row, column)
    if gpus < 1:
        raise table.wrong(row, column, "1 or more GPUs")
    return int(gpus)


def _type(table: Table, row: list[str]) -> str:
    if row[0] in STEPS_PER_S:
        return row[0]
    raise table.wrong(
        row,
        0,
        "a job type with a known V100 rate",
        hint=f"known are {len(STEPS_PER_S)} types such as {next(iter(STEPS_PER_S))!r}; "
        "convert the trace to weft-csv with its durations",
    )


GAVEL = Format(
    "gavel-trace",
    "tab-separated traces of Gavel (Narayanan et al., OSDI'20)",
    is_gavel,
    load_gavel,
)
