"""Measured step times of execution plans: the truth of a simulation, and beliefs that know it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource
from weft.core.knowledge.learning import NothingLearnt
from weft.core.knowledge.plans import PlanChoice
from weft.core.model.execution import Execution, read_execution
from weft.core.model.job import Allocation, Config, Job
from weft.core.model.trace import Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.perf.linear import LinearBeliefs


class Measured(NamedTuple):
    """Seconds of an update of a model under a plan; None is one that the job found itself.

    `gpu_gb` is the memory of a GPU that it takes, 0 where that was not measured.
    """

    model: str
    kind: str
    plan: Execution | None
    nodes: int
    gpus: int
    seconds: float
    gpu_gb: float = 0.0


class PlanTable:
    """Seconds of an update by model, kind, plan, nodes and GPUs; what is not there cannot run.

    A plan on fewer nodes than it was measured on takes as long as there. `batches` are global
    batches by model, `memory_gb` what a GPU of a kind has: plans that take more cannot run there.
    `restart_cost` is paid whenever a job starts, the first time too where `at_first`.
    """

    steady = False  # jobs report once they train

    def __init__(
        self,
        rows: Iterable[Measured],
        batches: Mapping[str, int],
        restart_cost: float = 0.0,
        *,
        at_first: bool = True,
        memory_gb: Mapping[str, float] | None = None,
    ) -> None:
        self.batches, self._restart, self._at_first = batches, restart_cost, at_first
        self._cells: dict[tuple[str, str, int], dict[Execution | None, dict[int, float]]] = {}
        for row in rows:
            if row.gpu_gb > (memory_gb or {}).get(row.kind, inf):
                continue
            cell = self._cells.setdefault((row.model, row.kind, row.gpus), {})
            by_nodes = cell.setdefault(row.plan, {})
            by_nodes[row.nodes] = min(row.seconds, by_nodes.get(row.nodes, inf))

    def seconds(self, job: Job, config: Config, plan: Execution | None) -> float:
        """Of an update; infinite where it cannot run."""
        known = self._cells.get((job.model, config.kind, config.gpus), {}).get(plan, {})
        wider = [nodes for nodes in known if nodes >= config.nodes]
        return known[min(wider)] if wider else inf

    def own(self, job: Job, gpus: int) -> Execution | None:
        """What a job runs by itself on that many GPUs."""
        return job.plans[0].on(gpus) if job.plans else None

    def choices(self, job: Job, config: Config) -> list[PlanChoice]:
        """Plans that the job declares and that run there, the fastest first."""
        batch = self.batches.get(job.model, 1)
        cell = self._cells.get((job.model, config.kind, config.gpus), {})
        declared = {plan.on(config.gpus) for plan in job.plans} if job.plans else {None}
        every = [
            PlanChoice(plan, batch / self.seconds(job, config, plan))
            for plan in cell
            if plan in declared and (plan is None or plan.divides(batch))
        ]
        return sorted(
            (choice for choice in every if choice.rate > 0.0), key=lambda choice: -choice.rate
        )

    # ---- the truth

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """A job that runs at the measured speed of what it holds; its hint `steps` is its work."""
        return _Planned(self, job, truth.length / job.hints["steps"])

    def restart(self, job: Job, *, first: bool) -> float:  # noqa: ARG002 - the same for all
        """What was stated."""
        return self._restart if self._at_first or not first else 0.0


class _Planned:
    """One job's pace under the plan it was given, or its own."""

    __slots__ = ("_job", "_pace", "_step_s", "_table")

    def __init__(self, table: PlanTable, job: Job, step_s: float) -> None:
        self._table, self._job, self._step_s = table, job, step_s
        self._pace = Pace(0.0)

    def begin(self, on: Allocation, kind: str) -> None:
        """Look the speed up."""
        plan = self._table.own(self._job, on.gpus) if on.plan is None else on.plan
        config = Config(kind, len(on.slices), on.gpus)
        seconds = self._table.seconds(self._job, config, plan)
        batch, replicas = self._table.batches[self._job.model], plan.data if plan else on.gpus
        report = Report(
            step_s=seconds, batch=float(batch), replicas=float(replicas), nodes=float(config.nodes)
        )
        self._pace = Pace(self._step_s / seconds, report=report)

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        """Always the same."""
        return self._pace


class KnownPlans(NothingLearnt):
    """The table itself as what the scheduler believes of plans."""

    def __init__(self, table: PlanTable) -> None:
        self._table = table
        self._choices: dict[tuple[str, tuple[Execution, ...], Config], Sequence[PlanChoice]] = {}

    def knows(self, job: Job) -> bool:
        """Of every model that was measured."""
        return job.model in self._table.batches

    def choices(self, job: Job, config: Config) -> Sequence[PlanChoice]:
        """What was measured, the fastest first."""
        key = (job.model, job.plans, config)
        if key not in self._choices:
            self._choices[key] = tuple(self._table.choices(job, config))
        return self._choices[key]

    def observe(self, job: Job, kind: str, report: Report, attempt: AttemptSource) -> None:
        """Nothing to learn."""

    def fail(self, job: Job, kind: str, on: Allocation) -> None:
        """Nothing to learn."""

    def forget(self, job: Job) -> None:
        """Nothing was learnt."""


@dataclass
class OwnPlans(LinearBeliefs):
    """The same as beliefs of policies that know of no plans: every job runs its own.

    `fits` may rule out kinds and sizes of a model, where a policy cannot use all that was measured.
    """

    table: PlanTable
    fits: Callable[[Job, Config], bool] | None = None

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Samples per second of each job's own plan; 0 where that does not run."""
        known: dict[tuple[str, tuple[Execution, ...]], list[float]] = {}
        for job in table.jobs:
            if (job.model, job.plans) not in known:
                known[job.model, job.plans] = [self.rate(job, config) for config in configs]
        cells = [known[job.model, job.plans] for job in table.jobs]
        return np.array(cells, dtype=float).reshape(len(table), len(configs))

    def rate(self, job: Job, config: Config) -> float:
        """Of one job at one size."""
        if self.fits is not None and not self.fits(job, config):
            return 0.0
        own = self.table.own(job, config.gpus)
        return self.table.batches[job.model] / self.table.seconds(job, config, own)

    def restart_s(self, table: JobTable) -> Floats:
        """What the truth charges."""
        return np.array([self.table.restart(job, first=False) for job in table.jobs])


# Execution plans of three GPTs measured on one H200, in time and memory.
#
# `python -m benchmarks.plan_profiles` measures them again, there or on another GPU.

KIND = "h200"
MEASURED = Path(__file__).with_name("h200_plans.json")


def load_measured(gpu_mem_gb: float = 141.0) -> PlanTable:
    """Seconds of an update on one GPU with so much memory; plans that need more cannot run."""
    whole = json.loads(MEASURED.read_text())
    rows = [
        Measured(row["model"], KIND, _plan(row["plan"]), 1, 1, row["step_s"], row["gpu_gb"])
        for row in whole["rows"]
        if "gpu_gb" in row  # else it found too little memory even there
    ]
    batches = {model["name"]: model["batch"] for model in whole["models"]}
    return PlanTable(rows, batches, memory_gb={KIND: gpu_mem_gb})


def _plan(text: str) -> Execution | None:
    return read_execution(text).on(1)
