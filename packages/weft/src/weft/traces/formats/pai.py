"""Alibaba PAI gpu-v2020: the official tables without header, and the simulator's 100K sample."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import nan

from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Truth
from weft.frozen import frozen
from weft.traces.draft import Format, Pair, TraceDraft, demand
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile
from weft.traces.table import TraceTable

JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
TAG = ("inst_id", "user", "gpu_type_spec", "group", "workload")
STATUS = {"Terminated": "completed", "Failed": "failed", "Running": "running"}
STATUSES = frozenset({*STATUS, "Waiting"})
CLUSTER = "798x2:p100+497x2:t4+280x8:misc+135x8:v100m32+104x8:v100"
TASKS = 1_261_050


def is_tables(sample: FileSample) -> bool:
    """The job, task or group-tag table, with or without a header line."""
    return _table(sample) is not None


def is_simulator_sample(sample: FileSample) -> bool:
    """The header of the simulator's sample."""
    return sample.header >= {"job_id", "num_gpu", "num_inst", "submit_time", "duration"}


def load_tables(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Tasks joined to jobs; without a job table every task is a job of its own."""
    tables = {_table(file.sample()): file for file in files}
    draft = TraceDraft(cluster=CLUSTER, published=TASKS)
    if TASK not in tables:
        return draft
    tasks = list(_tasks(tables[TASK], draft))
    if JOB in tables:
        kinds = _kinds(tables[TAG]) if TAG in tables else {}
        draft.pairs += _jobs(tables[JOB], tasks, kinds, draft)
    else:
        draft.pairs += (_alone(task) for task in tasks)
    return draft


def load_sample(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """Percent of a GPU per instance; lengths below 1 s become 1 s."""
    draft = TraceDraft(cluster=CLUSTER)
    for file in files:
        table = TraceTable(file)
        draft.pairs += (_sample_job(table, row) for row in table)
        draft.rows += table.rows
    return draft


@frozen
class _Task:
    job: str
    role: str
    instances: int
    status: str
    start: float
    end: float
    cpus: float
    mem_gb: float
    gpus: float


def _table(sample: FileSample) -> tuple[str, ...] | None:
    cells = sample.cells(0)
    for names in (JOB, TASK, TAG):
        if tuple(cells) == names:
            return names
    if len(cells) in (len(JOB), len(TASK)) and cells[3] in STATUSES:
        return JOB if len(cells) == len(JOB) else TASK
    # Nothing in a group-tag row is telling; only its file name is.
    return TAG if len(cells) == len(TAG) and "group_tag" in sample.name else None


def _rows(file: TraceFile, names: tuple[str, ...]) -> Iterator[tuple[TraceTable, list[str]]]:
    table = TraceTable(file, names=names)
    for row in table:
        if row[0] != names[0]:
            yield table, row


def _tasks(file: TraceFile, draft: TraceDraft) -> Iterator[_Task]:
    for table, row in _rows(file, TASK):
        draft.rows += 1
        if row[3] == "Waiting":
            draft.dropped["never started"] += 1
            continue
        instances = int(table.count(row, 2)) or 1
        yield _Task(
            row[0],
            row[1],
            instances,
            row[3],
            table.number(row, 4),
            table.number(row, 5),
            instances * table.count(row, 6) / 100,
            instances * table.count(row, 7),
            table.count(row, 8) / 100,
        )


def _alone(task: _Task) -> Pair:
    job = Job(
        JobId(f"{task.job}/{task.role}"),
        task.start,
        demand(task.gpus, task.instances),
        cpus=task.cpus,
        mem_gb=task.mem_gb,
    )
    return job, _truth(task.status, task.end - task.start)


def _jobs(
    file: TraceFile, tasks: list[_Task], kinds: dict[str, tuple[str, ...]], draft: TraceDraft
) -> Iterator[Pair]:
    roles: dict[str, list[_Task]] = defaultdict(list)
    for task in tasks:
        roles[task.job].append(task)
    for table, row in _rows(file, JOB):
        gang = roles.get(row[0])
        if gang is None:
            draft.dropped["no tasks"] += 1
            continue
        begun = min((t.start for t in gang if t.start == t.start), default=nan)
        ended = max((t.end for t in gang if t.end == t.end), default=nan)
        job = Job(
            JobId(row[0]),
            table.number(row, 4),
            _gang(gang, kinds.get(row[1], ())),
            user=table.text(row, 2),
            cpus=sum(t.cpus for t in gang),
            mem_gb=sum(t.mem_gb for t in gang),
        )
        yield job, _truth(row[3], ended - begun)


def _gang(tasks: list[_Task], kinds: tuple[str, ...]) -> Demand:
    """Workers of one fraction stay a shared gang; mixed fractions are rounded up to whole GPUs."""
    using = [task for task in tasks if task.gpus > 0]
    each = {task.gpus for task in using}
    if len(each) == 1:
        return demand(each.pop(), sum(task.instances for task in using), kinds)
    return demand(float(-(-sum(t.gpus * t.instances for t in using) // 1)), 1, kinds)


def _kinds(file: TraceFile) -> dict[str, tuple[str, ...]]:
    specs = ((row[0], table.text(row, 2)) for table, row in _rows(file, TAG))
    return {name: tuple(spec.lower().split("|")) for name, spec in specs if spec}


def _truth(status: str, length: float) -> Truth:
    state = STATUS.get(status, "unknown")
    return Truth(length, (), state, state == "running")


def _sample_job(table: TraceTable, row: list[str]) -> Pair:
    instances = int(table.count(row, table.index("num_inst"))) or 1
    cpus = table.optional(row, table.maybe("num_cpu"))
    guess = table.optional(row, table.maybe("user_dur", "group_dur"))
    job = Job(
        JobId(row[table.index("job_id")]),
        table.number(row, table.index("submit_time")),
        demand(table.count(row, table.index("num_gpu")) / 100, instances),
        user=table.text(row, table.maybe("user")),
        cpus=None if cpus is None else cpus / 100 * instances,
        hints={} if guess is None else {"duration_s": guess},
    )
    return job, Truth(max(table.number(row, table.index("duration")), 1.0))


TABLES = Format(
    "pai-tables",
    "job and task tables of Alibaba PAI gpu-v2020 (Weng et al., NSDI'22)",
    is_tables,
    load_tables,
)
SAMPLE = Format(
    "pai-sample",
    "the 100K job sample of the PAI simulator (Weng et al., NSDI'22)",
    is_simulator_sample,
    load_sample,
)
