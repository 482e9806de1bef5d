"""Plans that were measured on one GPU, and which of them a GPU with less memory can run."""

from __future__ import annotations

import pytest
from benchmarks.plan_tables import KIND, load_measured

from weft.core.model.execution import read_execution
from weft.core.model.job import Config, Job, JobId

PLANS = tuple(read_execution(text) for text in ("dp", "gc", "ga4", "offload"))


@pytest.mark.parametrize(
    ("model", "gpu_mem_gb", "plans"),
    [
        ("gpt-1.4b", 141.0, ["dp1", "dp1-ga4", "dp1-gc", "dp1-offload"]),
        ("gpt-1.4b", 80.0, ["dp1-ga4", "dp1-gc"]),
        ("gpt-1.4b", 44.0, ["dp1-gc"]),
        ("gpt-2.8b", 141.0, ["dp1-ga4", "dp1-gc", "dp1-offload"]),
        ("gpt-2.8b", 40.0, []),
    ],
)
def test_the_fastest_plan_that_memory_allows_comes_first(
    model: str, gpu_mem_gb: float, plans: list[str]
) -> None:
    job = Job(JobId("gpt"), model=model, plans=PLANS)

    choices = load_measured(gpu_mem_gb).choices(job, Config(KIND, 1, 1))

    assert [choice.plan and choice.plan.text for choice in choices] == plans
