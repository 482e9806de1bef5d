"""Rubick's artifact played again comes out as its authors' own runs, mistakes included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.core.model.execution import Execution
from weft.perf.plans.learnt import Coefficients, PlanLaw
from weft_papers.rubick.published.artifact import NODES, simulate
from weft_papers.rubick.published.data import read_plan
from weft_papers.rubick.published.tables import PER_NODE, read_model, read_speeds

pytestmark = pytest.mark.data
WHOLE = NODES * PER_NODE


def test_every_job_of_the_naive_trace_ends_when_it_did_for_the_authors(
    data: Callable[[str], Path],
) -> None:
    theirs = json.loads((data("rubick") / "naive-result.json").read_text())

    result = simulate(data("rubick") / "naive.csv")

    assert result.jct_s == pytest.approx(theirs["jct_s"], rel=1e-12)
    assert result.mean_s == pytest.approx(theirs["avg_jct_s"], rel=1e-12)
    assert result.makespan_s == theirs["makespan_s"]


@pytest.mark.slow
def test_the_base_trace_runs_on_more_gpus_than_there_are(data: Callable[[str], Path]) -> None:
    result = simulate(data("rubick") / "trace-base.csv")

    assert len(result.jct_s) == 406
    assert result.mean_s == pytest.approx(3638.29, abs=0.01)
    assert result.makespan_s == 58_680.0
    assert sum(gpus > WHOLE for gpus in result.running) == 417
    assert (len(result.running), max(result.running)) == (978, 344)


@pytest.mark.slow
def test_who_lost_its_gpus_stops_once_that_is_corrected(data: Callable[[str], Path]) -> None:
    result = simulate(data("rubick") / "trace-base.csv", honest=True)

    assert len(result.jct_s) == 406
    assert max(result.running) <= WHOLE
    assert result.mean_s > 3638.29


def test_e4_sizes_that_are_no_faster_are_written_down_as_smaller_ones(
    data: Callable[[str], Path],
) -> None:
    table = read_model(data("rubick"), "bert").table

    assert [entry.gpus for entry in table[1:]] == [1, 2, 2, 4, 4, 4, 4, 8]
    assert [entry.rate for entry in table[1:]] == pytest.approx(
        [48.0383, 81.0872, 81.0872, *[129.4518] * 4, 196.6691], abs=1e-3
    )


# Fig. 7: LLaMA with 7 billion parameters and a batch of 16, as the authors describe it there.
LLAMA = PlanLaw(
    6426.26171875,
    16,
    500.0,
    0.96,
    110.0,
    Coefficients(2.0, 10.0, 0.03, 4.0, 1.049, 1.119, 1000.0),
    4096.0 * 2048.0,
    32,
    most={("offload", True): 16},
)


@pytest.mark.parametrize(
    ("placement", "plans", "best"),
    [
        ("8888", ("184", "228", "148", "244", "418"), "244"),
        ("4444", ("144", "224", "242", "441"), "441"),
        ("4", ("221", "141"), "221"),
    ],
)
def test_e5_the_plan_of_a_placement(
    data: Callable[[str], Path], placement: str, plans: tuple[str, ...], best: str
) -> None:
    believed = {
        plan: LLAMA.step_ms(read_plan(plan), nodes=len(placement), threads=2.0) for plan in plans
    }
    speeds = read_speeds(data("rubick"), "llama7b_bsz16")
    measured = {plan: speeds.seconds(tuple(map(int, placement)), plan) for plan in plans}

    assert min(believed, key=lambda plan: believed[plan]) == best
    assert min((took, plan) for plan, took in measured.items() if took > 0.0)[1] == best


def test_e5_one_gpu_has_memory_for_offload_with_checkpointing_alone() -> None:
    plans = [
        Execution(1, zero=zero, offload=offload, checkpointing=again)
        for zero, offload in ((0, False), (2, False), (0, True))
        for again in (False, True)
    ]

    assert [plan.text for plan in plans if LLAMA.allows_plan(plan)] == ["dp1-offload-gc"]


def test_e7_what_the_simulator_looks_up(data: Callable[[str], Path]) -> None:
    folder = data("rubick")
    bert, llama = (read_model(folder, name).speeds for name in ("bert", "llama30"))
    divided = ("344", "344", 888888)

    assert bert.seconds((8,), ("DP", "ga", "")) == pytest.approx(0.157684, abs=1e-6)
    assert bert.seconds((8,), ("DP", "ga", "zero-dp")) == pytest.approx(0.154989, abs=1e-6)
    assert llama.seconds((8,) * 6, divided) == pytest.approx(2.533506, abs=1e-6)
    assert llama.seconds((8,) * 4, ("442", "442", 8888)) == pytest.approx(2.759324, abs=1e-6)
