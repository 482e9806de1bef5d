"""A job as lists, those who watch, and notifications all tell about it, with what is measured."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from weft.core.events.report import Report
from weft.core.model.job import PriorityWord
from weft.frozen import frozen_by_name

StateWord = Literal[
    "pending",
    "starting",
    "running",
    "checkpointing",
    "preempted",
    "suspended",
    "succeeded",
    "failed",
    "cancelled",
]
NodeWord = Literal["up", "draining", "drained", "set aside", "down"]
RoleWord = Literal["admin", "user", "viewer"]


@frozen_by_name
class JobName:
    """The id, the name and the owner of a job."""

    id: str
    name: str
    tenant: str


@frozen_by_name
class GpuRange:
    """The GPUs that a job asks for."""

    asked: int
    min: int
    max: int


@frozen_by_name
class JobRow(JobName):
    """The fields that every description of a job has; times in seconds since the epoch."""

    user: str
    state: StateWord
    priority: PriorityWord
    gpus: GpuRange
    kinds: list[str]
    submitted: float
    started: float | None
    ended: float | None
    restarts: int
    attempt: int
    progress: float | None
    batch: float | None
    goodput: float | None
    speed: float | None
    gpu_seconds: float
    app: str = ""


@frozen_by_name
class Measurements:
    """Values of its last report; null if unknown.

    `left_s` is the time its remaining steps take at the present speed. `waits_for_data` and
    `gpu_busy` are fractions of the time, `gpu_mem_gb` its memory on the GPU where it uses most.
    """

    steps: float | None = None
    total_steps: float | None = None
    steps_per_s: float | None = None
    left_s: float | None = None
    waits_for_data: float | None = None
    gpu_mem_gb: float | None = None
    gpu_mem_peak_gb: float | None = None
    gpu_busy: float | None = None
    busy_cpus: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None


@frozen_by_name
class MetricValue:
    """The last value of a metric, at its step, and the least and the most so far.

    A value is null where it was no finite number.
    """

    step: float
    value: float | None
    least: float | None
    most: float | None


@frozen_by_name
class MetricCurve(MetricValue):
    """A metric over its steps, in at most 240 points; `at` is when each value was measured."""

    name: str
    count: int
    least_step: float
    most_step: float
    steps: list[float]
    values: list[float | None]
    at: list[float]


@frozen_by_name
class JobCurves:
    """Metrics of one job.

    `left_out` counts values of names beyond the first 64. `parameters` are its values in a sweep.
    """

    id: str
    name: str
    state: StateWord
    parameters: dict[str, str] = field(default_factory=dict)
    metrics: list[MetricCurve] = field(default_factory=list)
    left_out: int = 0


@frozen_by_name
class SweepCurves:
    """Metrics of the jobs of a sweep; `next` is what `after` continues from.

    `metric` is what its search compares trials by, if it does, and `goal` which values are better.
    `trouble` is why the search ended early.
    """

    id: str
    jobs: list[JobCurves]
    next: str | None
    metric: str = ""
    goal: Literal["min", "max", ""] = ""
    trouble: str = ""


def measurements_of(report: Report, *, still: bool = False) -> Measurements | None:
    """Return the measurements in a report; None if it has none.

    A job that stands still has no speed.
    """
    waits = None
    if report.step_s and report.data_s is not None:
        waits = min(report.data_s / report.step_s, 1.0)
    measured = Measurements(
        steps=report.steps,
        total_steps=report.total_steps,
        steps_per_s=1.0 / report.step_s if report.step_s and not still else None,
        left_s=None if still else report.left_s,
        waits_for_data=waits,
        gpu_mem_gb=report.held_gb,
        gpu_mem_peak_gb=report.mem_gb,
        gpu_busy=report.sm,
        busy_cpus=report.cpus,
        read_mb_s=report.read_mb_s,
        write_mb_s=report.write_mb_s,
    )
    return None if measured == Measurements() else measured


# How the GPUs of machines are, as the driver tells it.


@frozen_by_name
class GpuSeries:
    """One GPU at the times of the answer, null where its driver did not tell.

    `sm` is the part of the time in which a kernel ran, `errors` memory errors that could not be
    corrected since the driver was loaded.
    """

    gpu: int
    sm: list[float | None]
    held_gb: list[float | None]
    power_w: list[float | None]
    temp_c: list[float | None]
    errors: list[float | None]


@frozen_by_name
class NodeDevices:
    """Use of a node's GPUs over time; empty where no driver reports it."""

    at: list[float]
    gpus: list[GpuSeries]


@frozen_by_name
class GpuHealth:
    """One GPU: `fault` says why it should not be used, `aside` whether it is set aside for it.

    `notes` are other observations: its temperature, errors of programs.
    """

    gpu: int
    fault: str = ""
    aside: bool = False
    notes: list[str] = field(default_factory=list)
