"""Measurements and traces of Rubick's authors: step times of plans, models, jobs."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.plan_tables import Measured, PlanTable

from weft.core.model.cluster import Cluster, Node
from weft.core.model.execution import Execution
from weft.core.model.job import Demand, Job, JobId, NodeId, Tier
from weft.core.model.trace import Trace, Truth
from weft.perf.plans.learnt import Coefficients, PlanLaw

KIND = "a800"
RESTART_S = 260.0
FAMILIES = {
    "ga": Execution(),
    "gc": Execution(checkpointing=True),
    "zero-dp": Execution(zero=2),
    "zero-offload": Execution(zero=2, offload=True),
}
LIMITS = {"DP": "dp", "zero-dp": "zero", "zero-offload": "offload"}
BERT = {1: 1.0, 2: 1.8, 4: 3.2, 8: 5.8}  # how the forward pass of bert scales with GPUs


def read_plan(text: str) -> Execution:
    """A plan as the authors write it: a name, or digits of pipeline, tensor, data."""
    if text in FAMILIES:
        return FAMILIES[text]
    pipeline, tensor, data = (int(digit) for digit in text)
    return Execution(data, tensor, pipeline)


def read_models(folder: Path) -> dict[str, Any]:
    """Constants by model."""
    models: dict[str, Any] = json.loads((folder / "models.json").read_text())["models"]
    return models


def read_laws(folder: Path) -> dict[str, PlanLaw]:
    """The performance model of every model, with the coefficients its scheduler uses."""
    laws = {}
    for name, facts in read_models(folder).items():
        env, limits = facts["env"], facts["max_samples_per_gpu"]
        laws[name] = PlanLaw(
            facts["params_Mi"],
            facts["global_batch"],
            facts["forward_ms_1gpu_global_batch"],
            env["B_pcie"],
            env["B_nvlink"],
            Coefficients(**facts["fit"]),
            facts["sequence"] * facts["hidden"],
            facts["layers"],
            BERT if name == "bert" else {},
            {
                (LIMITS[family], which == "gc"): most
                for family, by in limits.items()
                for which, most in by.items()
            },
        )
    return laws


def read_measured(folder: Path) -> list[Measured]:
    """Every measured plan and placement, with replicas filled in."""
    rows = []
    with (folder / "placements.csv").open() as file:
        for row in csv.DictReader(file):
            nodes, gpus, seconds = int(row["nodes"]), int(row["gpus"]), float(row["iter_time_s"])
            if "+" in row["exec_plan"] or row["model"] in ("llama7b_bsz16", "t5_3B"):
                continue
            plan = read_plan(row["exec_plan"]).on(gpus)
            if plan is not None and seconds > 0.0:
                rows.append(Measured(row["model"], KIND, plan, nodes, gpus, seconds))
    return rows


@cache
def read_table(folder: Path) -> PlanTable:
    """The measured step times as the truth; every start costs what the authors charge."""
    batches = {name: facts["global_batch"] for name, facts in read_models(folder).items()}
    return PlanTable(read_measured(folder), batches, RESTART_S)


def find_plans(measured: list[Measured]) -> dict[str, tuple[Execution, ...]]:
    """By model, all plans that were measured, with replicas left open."""
    by_model: dict[str, dict[Execution, None]] = {}
    for row in measured:
        if row.plan is not None:
            by_model.setdefault(row.model, {})[replace(row.plan, data=0)] = None
    return {model: tuple(plans) for model, plans in by_model.items()}


def read_trace(path: Path) -> Trace:
    """Jobs with all plans that their model was measured with, the submitted one first."""
    measured = read_measured(path.parent)
    plans, table = find_plans(measured), read_table(path.parent)
    with path.open() as file:
        pairs = [_job(row, plans, table) for row in csv.DictReader(file)]
    return Trace(path.stem, tuple(pairs))


def _job(
    row: Mapping[str, str], plans: Mapping[str, tuple[Execution, ...]], table: PlanTable
) -> tuple[Job, Truth]:
    model, gpus, steps = row["application"], int(row["num_gpus"]), float(row["steps"])
    own = replace(read_plan(row["exec_plan"]), data=0)
    job = Job(
        JobId(row["name"]),
        float(row["submission_time"]),
        Demand(gpus, 1, 64),
        model=model,
        hints={"steps": steps + 1.0},
        tier=Tier.GUARANTEED if row["is_sla"] == "1" else Tier.OPPORTUNISTIC,
        plans=(own, *(plan for plan in plans[model] if plan != own)),
    )
    seconds = table.batches[model] / max(
        (choice.rate for choice in choices_of(table, job, gpus)), default=1.0
    )
    return job, Truth((steps + 1.0) * seconds)


def choices_of(table: PlanTable, job: Job, gpus: int) -> list[Any]:
    """Return the plans that run on so many GPUs of as few nodes as possible."""
    from weft.core.model.job import Config

    return table.choices(job, Config(KIND, -(-gpus // 8), gpus))


def cluster() -> Cluster:
    """Eight nodes of eight GPUs."""
    nodes = tuple(
        Node(NodeId(f"n{i}"), KIND, 8, cpus=96.0, mem_gb=1600.0, gpu_mem_gb=80.0) for i in range(8)
    )
    return Cluster(nodes, "rubick")
