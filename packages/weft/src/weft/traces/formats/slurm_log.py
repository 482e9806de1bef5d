"""Accounting logs of Slurm-like clusters: SenseTime Helios and Shanghai AI Laboratory's Acme."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable, date_of, seconds

LOG = frozenset({"job_id", "gpu_num", "submit_time", "duration"})
OPEN = frozenset({"running", "suspended", "pending"})
# Thin warm-up rows before this date are left out by the studies of Helios.
HELIOS_START = seconds("2020-04-01")
ACME_START = seconds("2023-03-01")
CLUSTERS = ("venus", "earth", "saturn", "uranus", "seren", "kalos")
ROWS = {"venus": 246_708, "earth": 872_886, "saturn": 1_753_078, "uranus": 490_309, "kalos": 62_413}


def is_helios(sample: FileSample) -> bool:
    """A virtual cluster, or at least nothing of Acme's."""
    return sample.header >= LOG and not is_acme(sample)


def is_acme(sample: FileSample) -> bool:
    """A job type and GPU-time, or the bare columns of a Kalos sample."""
    return sample.header >= LOG and (
        bool(sample.header & {"type", "gpu_time"}) or sample.header == LOG | {"queue"}
    )


def load_helios(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """`cluster_log.csv` of one or more clusters; submissions before April 2020 are dropped."""
    draft = _load(files, options, HELIOS_START)
    early = sum(job.submitted < 0 for job, _ in draft.pairs)
    if early:
        draft.dropped["before 2020-04-01"] += early
        draft.pairs = [pair for pair in draft.pairs if not pair[0].submitted < 0]
    return draft


def load_acme(files: Sequence[TraceFile], options: Options) -> TraceDraft:
    """`trace_seren.csv`, `trace_kalos.csv` and the older traces in the same columns."""
    return _load(files, options, ACME_START)


def _load(files: Sequence[TraceFile], options: Options, origin: float) -> TraceDraft:
    draft = TraceDraft(origin=date_of(origin))
    clusters = {file.path: _cluster(file) for file in files}
    chosen = [f for f in files if not options.cluster or clusters[f.path] == options.cluster]
    for file in chosen or files:
        cluster = options.cluster or clusters[file.path]
        table = TraceTable(file)
        draft.pairs += map(_Reader(table, cluster, origin).pair, table)
        draft.rows += table.rows
        draft.published += ROWS.get(cluster, 0)
        draft.cluster = cluster if cluster in CLUSTERS and len(files) == 1 else ""
    return draft


def _cluster(file: TraceFile) -> str:
    path = file.path.lower()
    return next((name for name in CLUSTERS if name in path), "")


class _Reader:
    def __init__(self, table: TraceTable, cluster: str, origin: float) -> None:
        self.table, self.cluster, self.origin = table, cluster, origin
        self.id, self.gpus = table.index("job_id"), table.index("gpu_num")
        self.submit, self.length = table.index("submit_time"), table.index("duration")
        self.start, self.end = table.maybe("start_time"), table.maybe("end_time")
        self.queue, self.vc = table.maybe("queue"), table.maybe("vc")
        self.user, self.state = table.maybe("user"), table.maybe("state")
        self.type, self.cpus = table.maybe("type"), table.maybe("cpu_num")
        self.mem, self.nodes = table.maybe("mem_per_pod_GB"), table.maybe("node_num")
        self.cut = table.maybe("duration_censored")

    def pair(self, row: list[str]) -> Pair:
        table = self.table
        state = table.text(row, self.state).lower() or "completed"
        nodes = table.optional(row, self.nodes)
        mem = table.optional(row, self.mem)
        job = Job(
            JobId(row[self.id]),
            table.moment(row, self.submit) - self.origin,
            demand(table.count(row, self.gpus)),
            tenant=table.text(row, self.vc) or self.cluster,
            user=table.text(row, self.user),
            model=table.text(row, self.type).lower(),
            cpus=table.optional(row, self.cpus),
            mem_gb=None if mem is None else mem * (nodes or 1),
        )
        cut = self.cut >= 0 and table.count(row, self.cut) > 0
        return job, Truth(self._length(row), (), state, cut or state in OPEN)

    def _length(self, row: list[str]) -> float:
        # In Kalos the duration column includes queueing, so start and end come first.
        table = self.table
        if self.start >= 0 and self.end >= 0:
            return table.moment(row, self.end) - table.moment(row, self.start)
        length = table.number(row, self.length)
        return length - table.count(row, self.queue) if self.queue >= 0 else length


HELIOS = Format(
    "helios-csv", "cluster_log.csv of SenseTime Helios (Hu et al., SC'21)", is_helios, load_helios
)
ACME = Format(
    "acme-csv",
    "trace_seren.csv and trace_kalos.csv of Acme (Hu et al., NSDI'24)",
    is_acme,
    load_acme,
)
