"""Arena's simulator played again comes out as its authors' code; `weft verify` finds its bias."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.papers.plans.arena_artifact import Task, simulate, write_stretches

from weft.report.verify import Level, read_runs, verify


@pytest.mark.data
def test_fcfs_on_the_pai_trace_is_as_fast_as_for_the_authors(data: Path) -> None:
    result = simulate(data / "arena" / "trace_pai.csv")

    assert len(result.jct_s) == 125
    assert result.mean_s == pytest.approx(7459.2, abs=0.05)
    assert max(result.jct_s) == 165_000.0


@pytest.mark.data
def test_the_mean_of_who_finished_in_time_is_found_out(data: Path, tmp_path: Path) -> None:
    result = simulate(data / "arena" / "trace_philly.csv")
    path = tmp_path / "philly.csv"
    with path.open("w") as file:
        write_stretches(result, file)

    found = {finding.check: finding for finding in verify(read_runs(path))}

    assert (len(result.jct_s), len(result.tasks)) == (590, 1938)
    assert [name for name in found if found[name].level is Level.WRONG] == ["all jobs"]
    assert found["all jobs"].text == "1348 of 1938 jobs have no end, and nothing says so"
    means = "of the finished alone: 83192 s; with the others it is at least 516474 s"
    assert found["mean"].text == means
    assert found["capacity"].text == "never above 1280 GPUs"


def test_progress_counts_from_all_the_time_a_job_ran() -> None:
    task = Task("a", 0.0, 1000, "a10", 1, 2.0)

    assert [task.run(), task.run()] == [False, False]
    task.seconds = 1.0  # faster from now on, and by that from the beginning

    assert not task.run()
    assert task.steps - task.ran // task.seconds == 100.0
