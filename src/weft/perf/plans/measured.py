"""Execution plans of three GPTs measured on one H200, in time and memory.

`python -m benchmarks.plan_profiles` measures them again, there or on another GPU.
"""

from __future__ import annotations

import json
from importlib.resources import files

from weft.core.model.execution import Execution, read_execution
from weft.perf.plans.tables import Measured, PlanTable

KIND = "h200"
SHIPPED = "data/h200_plans.json"


def load_measured(gpu_mem_gb: float = 141.0) -> PlanTable:
    """Seconds of an update on one GPU with so much memory; plans that need more cannot run."""
    whole = json.loads(files("weft.perf").joinpath(SHIPPED).read_text())
    rows = [
        Measured(row["model"], KIND, _plan(row["plan"]), 1, 1, row["step_s"])
        for row in whole["rows"]
        if row.get("gpu_gb", float("inf")) <= gpu_mem_gb
    ]
    return PlanTable(rows, {model["name"]: model["batch"] for model in whole["models"]})


def _plan(text: str) -> Execution | None:
    return read_execution(text).on(1)
