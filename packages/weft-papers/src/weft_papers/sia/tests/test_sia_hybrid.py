"""Pipeline-parallel jobs, rigid jobs and jobs that may not be stopped, on measured profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import weft
from weft.core.model.job import BatchRange, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.sim.result import Outcome

STAGES = {"rtx": 8, "a100": 2}
ADAPTIVE = BatchRange(128, 4096, 1024)


def play(data: Callable[[str], Path], *jobs: tuple[Job, Truth]) -> Outcome:
    trace = Trace("mixed", jobs)
    profiles = str(data("sia/profiles"))
    return weft.simulate(trace, "sia", "sia-hetero", profiles=profiles).outcomes["sia"][0]


def job(name: str, model: str, demand: Demand, **more: object) -> tuple[Job, Truth]:
    return Job(JobId(name), 0.0, demand, model=model, **more), Truth(3600.0)  # type: ignore[arg-type]


def sizes(outcome: Outcome, name: str) -> set[tuple[str, int]]:
    """Every (kind, GPUs) that a job held."""
    held: dict[float, list[str]] = {}
    for bar in outcome.timeline:
        if bar.job == name:
            held.setdefault(bar.start_s, []).append(bar.node.rsplit("-", 1)[0])
    return {(kinds[0], len(kinds)) for kinds in held.values()}


@pytest.mark.data
def test_a_pipeline_runs_on_whole_replicas_of_kinds_it_was_split_for(
    data: Callable[[str], Path],
) -> None:
    gpt = [job(f"gpt-{i}", "gpt_pmp", Demand(8, 2, 64), batch=ADAPTIVE) for i in range(2)]
    small = [job(f"s-{i}", "cifar10", Demand(1, 1, 64), batch=ADAPTIVE) for i in range(6)]

    outcome = play(data, *gpt, *small)

    held = sizes(outcome, "gpt-0") | sizes(outcome, "gpt-1")
    assert outcome.metrics["finished"] == 8
    assert held
    assert all(kind in STAGES and gpus % STAGES[kind] == 0 for kind, gpus in held)


@pytest.mark.data
def test_rigid_and_strong_scaling_jobs_keep_to_their_sizes(data: Callable[[str], Path]) -> None:
    rigid = job("rigid", "bert", Demand(6), hints={"batch": 384.0})
    scaling = job("scaling", "cifar10", Demand(8, 1, 8), hints={"batch": 2048.0})
    others = [job(f"s-{i}", "cifar10", Demand(1, 1, 64), batch=ADAPTIVE) for i in range(4)]

    outcome = play(data, rigid, scaling, *others)

    assert {gpus for _, gpus in sizes(outcome, "rigid")} == {6}
    assert max(gpus for _, gpus in sizes(outcome, "scaling")) <= 8


@pytest.mark.data
def test_a_job_that_may_not_be_stopped_keeps_its_first_place(data: Callable[[str], Path]) -> None:
    fixed = job("fixed", "cifar10", Demand(1, 1, 64), batch=ADAPTIVE, preemptible=False)
    others = [job(f"s-{i}", "cifar10", Demand(1, 1, 64), batch=ADAPTIVE) for i in range(9)]

    outcome = play(data, fixed, *others)

    place = outcome.per_job.id.index("fixed")
    assert outcome.per_job.restarts[place] == 0
    assert outcome.per_job.restarts.max() > 0
