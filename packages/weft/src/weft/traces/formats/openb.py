"""Alibaba gpu-v2023 (openb): pods with parts of GPUs, and the spot trace of 2026."""

from __future__ import annotations

from collections.abc import Sequence

from weft.core.model.job import Job, JobId, Tier
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft, demand, recorded
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

PODS = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"})
SPOT = frozenset({"job_name", "gpu_model", "gpu_request", "worker_num", "submit_time", "job_type"})
CLUSTER = "549x8:g2+387x2:t4+17x4:t4+133x2:p100+39x8:g3+49x4:v100m16+26x8:v100m32+1x2:a10"
SPOT_CLUSTER = (
    "2494x1:a10+432x8:a100+219x8:h800+902x1:gpu-series-1+10x4:gpu-series-1+77x8:gpu-series-1"
    "+122x8:gpu-series-2+22x8:a800"
)
PHASES = {"succeeded": "completed", "failed": "failed", "running": "running", "pending": "pending"}
ROWS, SPOT_ROWS = 8_152, 466_867
# Pods without times never leave: longer than any simulation, yet finite.
FOREVER = 10 * 365 * 86_400.0


def is_openb(sample: FileSample) -> bool:
    """Thousandths of CPUs and GPUs."""
    return sample.header >= PODS


def is_spot(sample: FileSample) -> bool:
    """Workers, a GPU model and HP or Spot."""
    return sample.header >= SPOT


def load_openb(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Pod lists; the five-column ones have no times and are for packing."""
    draft = TraceDraft(cluster=CLUSTER)
    for file in files:
        table = TraceTable(file)
        timed = table.maybe("creation_time") >= 0
        reader = _Pods(table)
        draft.pairs += map(reader.timed if timed else reader.untimed, table)
        draft.rows += table.rows
        if "default" in file.name:
            draft.published += ROWS
    return draft


def load_spot(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """`job_info_df.csv`: gangs of workers on one GPU model, firm (HP) or spot."""
    draft = TraceDraft(cluster=SPOT_CLUSTER, published=SPOT_ROWS)
    for file in files:
        table = TraceTable(file)
        draft.pairs += (_spot_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


class _Pods:
    """Column positions of one pod list."""

    def __init__(self, table: TraceTable) -> None:
        self.table = table
        self.name, self.cpu = table.index("name"), table.index("cpu_milli")
        self.mem, self.gpus = table.index("memory_mib"), table.index("num_gpu")
        self.milli, self.spec = table.index("gpu_milli"), table.maybe("gpu_spec")
        self.qos, self.phase = table.maybe("qos"), table.maybe("pod_phase")
        self.created, self.deleted = table.maybe("creation_time"), table.maybe("deletion_time")
        self.scheduled = table.maybe("scheduled_time")

    def timed(self, row: list[str]) -> Pair:
        """A pod with a life; one that never started is counted from its creation."""
        table = self.table
        submitted = table.number(row, self.created)
        start = table.number(row, self.scheduled)
        begun = start if start == start else submitted
        phase = table.text(row, self.phase).lower()
        state = PHASES.get(phase, phase or "unknown")
        length = table.number(row, self.deleted) - begun
        return self._job(row, submitted), Truth(length, (), state, state in ("running", "pending"))

    def untimed(self, row: list[str]) -> Pair:
        """A pod of a packing experiment: one second after the last, forever."""
        return self._job(row, float(self.table.rows - 1)), Truth(FOREVER, (), "running", True)

    def _job(self, row: list[str], submitted: float) -> Job:
        table = self.table
        gpus = table.count(row, self.gpus)
        part = table.count(row, self.milli) / 1000
        spec = table.text(row, self.spec).lower()
        kinds = tuple(dict.fromkeys(spec.split("|"))) if spec else ()
        best_effort = table.text(row, self.qos) == "BE"
        return Job(
            JobId(row[self.name]),
            submitted,
            demand(part if gpus == 1 and 0 < part < 1 else gpus, 1, kinds),
            tier=Tier.OPPORTUNISTIC if best_effort else Tier.GUARANTEED,
            cpus=_of(table.optional(row, self.cpu), 1000),
            mem_gb=_of(table.optional(row, self.mem), 1024),
        )


def _of(count: float | None, unit: int) -> float | None:
    """A count in larger units; None stays unknown."""
    return None if count is None else count / unit


def _spot_job(table: TraceTable, row: list[str]) -> Pair:
    workers = int(table.count(row, table.index("worker_num"))) or 1
    each = table.count(row, table.index("gpu_request"))
    kind = table.text(row, table.index("gpu_model")).lower().partition("-sxm")[0]
    spot = table.text(row, table.index("job_type")).lower() == "spot"
    cpus = table.optional(row, table.maybe("cpu_request"))
    job = Job(
        JobId(row[table.index("job_name")]),
        table.number(row, table.index("submit_time")),
        demand(each, workers, (kind,) if kind else ()),
        tenant=table.text(row, table.maybe("organization")),
        tier=Tier.OPPORTUNISTIC if spot else Tier.GUARANTEED,
        cpus=None if cpus is None else cpus * workers,
    )
    return job, recorded(table, row)


OPENB = Format(
    "openb-csv", "openb_pod_list of Alibaba gpu-v2023 (Weng et al., ATC'23)", is_openb, load_openb
)
SPOT_FORMAT = Format(
    "spot-csv", "job_info_df.csv of Alibaba spot-gpu 2026 (GFS, ASPLOS'26)", is_spot, load_spot
)
