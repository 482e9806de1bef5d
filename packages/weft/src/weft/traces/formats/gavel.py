"""Tab-separated traces of Gavel, of 7 and 10 columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

START = ("job_type", "command")
OLD = (*START, "steps_flag", "needs_data", "total_steps", "arrival", "scale_factor")
BASE = (*START, "working_dir", "steps_flag", "needs_data", "total_steps", "scale_factor")
NEW = (*BASE, "priority_weight", "slo", "arrival")
GAVEL_CLUSTER = "9x4:v100+9x4:p100+9x4:k80"
STEPS_PER_S: Mapping[str, tuple[float, ...]] = {
    "A3C": (7.17577,),
    "CycleGAN": (4.42609,),
    "LM (batch size 5)": (109.167, 185.724, 126.716, 698.773),
    "LM (batch size 10)": (81.6516, 163.129, 121.478, 615.093),
    "LM (batch size 20)": (64.7425, 132.174, 110.997, 497.295),
    "LM (batch size 40)": (45.2374, 91.5927, 96.0312, 359.307),
    "LM (batch size 80)": (28.24, 58.0915, 74.8073, 231.176),
    "Recommendation (batch size 512)": (23.3176,),
    "Recommendation (batch size 1024)": (13.2826,),
    "Recommendation (batch size 2048)": (7.46963,),
    "Recommendation (batch size 4096)": (3.90605,),
    "Recommendation (batch size 8192)": (2.84151,),
    "ResNet-18 (batch size 16)": (32.3534, 100.142, 123.854, 382.597),
    "ResNet-18 (batch size 32)": (29.9472, 94.2489, 114.733, 340.038),
    "ResNet-18 (batch size 64)": (24.0932, 74.1359, 95.5881, 255.829),
    "ResNet-18 (batch size 128)": (17.9949, 23.9854, 69.9505, 162.092),
    "ResNet-18 (batch size 256)": (10.3003, 15.8828, 27.7821, 81.5066),
    "ResNet-50 (batch size 16)": (11.3961, 13.8598, 23.1956, 27.7991),
    "ResNet-50 (batch size 32)": (7.78726, 10.8346, 13.7632, 24.0674),
    "ResNet-50 (batch size 64)": (4.39477, 7.92205, 9.45195, 17.3032),
    "ResNet-50 (batch size 128)": (2.49677, 4.22301, 7.02929, 10.2932),
    "Transformer (batch size 16)": (11.0641, 14.1538, 20.085, 71.6517),
    "Transformer (batch size 32)": (10.6209, 13.328, 22.8225, 63.9777),
    "Transformer (batch size 64)": (8.61776, 15.8765, 19.6596, 49.6507),
    "Transformer (batch size 128)": (5.44611, 10.0692, 14.1745, 30.8835),
    "Transformer (batch size 256)": (1.59514, 2.88524, 4.76305, 9.71702),
}
COUNTS = (1, 2, 4, 8)


def is_gavel(sample: FileSample) -> bool:
    """Seven or ten tab-separated columns that begin with a job type and a command."""
    return count_columns(sample) in (len(OLD), len(NEW))


def load_gavel(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Length is steps over the V100 rate of the job type; the steps themselves are a hint."""
    draft = TraceDraft(cluster=GAVEL_CLUSTER)
    for file in files:
        width = len(file.sample().cells(0, "\t"))
        table = TraceTable(file, names=OLD if width == len(OLD) else NEW, delimiter="\t")
        draft.pairs += (_gavel_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


def batch_of(job_type: str) -> dict[str, float]:
    """The batch size in a job type such as `LM (batch size 10)`, as a hint."""
    match = re.search(r"\(batch size (\d+)\)", job_type)
    return {"batch": float(match[1])} if match else {}


def count_columns(sample: FileSample) -> int:
    """Tab-separated cells of the first line, 0 if it does not name a job type and a command."""
    cells = sample.cells(0, "\t")
    return len(cells) if len(cells) > 2 and "python" in cells[1] else 0


def _gavel_job(table: TraceTable, row: list[str]) -> Pair:
    job_type, gpus = _type(table, row), read_gang(table, row)
    steps = table.number(row, table.index("total_steps"))
    length = steps / steps_per_s(job_type, gpus)
    return read_job(table, row, length, {"steps": steps}), Truth(length)


def read_job(table: TraceTable, row: list[str], length: float, hints: dict[str, float]) -> Job:
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


def read_gang(table: TraceTable, row: list[str]) -> int:
    """GPUs of a row."""
    column = table.index("scale_factor")
    gpus = table.count(row, column)
    if gpus < 1:
        raise table.wrong(row, column, "1 or more GPUs")
    return int(gpus)


def _type(table: TraceTable, row: list[str]) -> str:
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
    "gavel-trace", "tab-separated traces of Gavel (Narayanan et al., OSDI'20)", is_gavel, load_gavel
)


# ---- Training steps per second on V100s, alone, by job type and number of GPUs
#
# Facts from the simulation throughput table of Gavel (Narayanan et al., OSDI'20), rounded to six
# digits; they turn the steps of a Gavel trace into seconds. Entries are for 1, 2, 4 and 8 GPUs;
# single-GPU job types have one.


def steps_per_s(job_type: str, gpus: int) -> float:
    """The rate of a gang; beyond what was measured, that of the largest measured gang."""
    rates = STEPS_PER_S[job_type]
    measured = [rate for count, rate in zip(COUNTS, rates, strict=False) if count <= gpus]
    return measured[-1]
