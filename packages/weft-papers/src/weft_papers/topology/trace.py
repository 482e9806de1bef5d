"""The job list of topology-aware scheduling (Amaral et al., SC'17), with times from its tables.

`solo_times.csv` lies beside the list, or is named by the option `tables`: a job's length is its
time alone on one socket, and the difference to two sockets is its traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.core.errors import TraceError
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.core.paths import expand
from weft.formulas.training.solo_times import FILE, SoloTimes, describe, read_solo_times
from weft.plural import say_gpus
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

COLUMNS = frozenset({"id", "arrival_s", "gpus", "model", "batch", "minimal_utility"})
CLUSTER = "75x4:p100@power8"  # as many GPUs as the list keeps busy


def sniff(sample: FileSample) -> bool:
    """Jobs with the least utility they accept."""
    return sample.header >= COLUMNS


def load(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """The least utility of a job is its hint `min_utility`."""
    draft = TraceDraft(cluster=CLUSTER)
    for file in files:
        beside = Path(file.path).with_name(FILE)
        times = read_solo_times(expand(options.tables) if options.tables else beside)
        table = TraceTable(file)
        draft.pairs += (_read_row(table, row, times) for row in table)
        draft.rows += table.rows
    return draft


def _read_row(table: TraceTable, row: list[str], times: SoloTimes) -> Pair:
    name = describe(row[table.index("model")], row[table.index("batch")])
    gpus = int(table.count(row, table.index("gpus")))
    if (name, gpus) not in times.near:
        raise TraceError(
            f"{FILE} has no time of {name} on {say_gpus(gpus)}",
            hint="name another one: -o tables=FILE",
        )
    job = Job(
        JobId(row[table.index("id")]),
        table.number(row, table.index("arrival_s")),
        demand(gpus),
        model=name,
        hints={"min_utility": table.number(row, table.index("minimal_utility"))},
        traffic=times.traffic(name, gpus),
    )
    return job, Truth(times.near[name, gpus])


FORMAT = Format(
    "topology-csv",
    "job list of topology-aware scheduling (Amaral et al., SC'17); times from the table beside it",
    sniff,
    load,
)
