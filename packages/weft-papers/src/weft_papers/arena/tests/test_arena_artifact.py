"""Arena's simulator played again comes out as its authors' code; `weft verify` finds its bias."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from weft.report.result_files import read_runs
from weft.report.verify import Severity, verify
from weft_papers.arena.published.artifact import ArenaTask, simulate, write_stretches
from weft_papers.arena.published.search import ArenaSearch


@pytest.mark.data
def test_fcfs_on_the_pai_trace_is_as_fast_as_for_the_authors(data: Callable[[str], Path]) -> None:
    result = simulate(data("arena") / "trace_pai.csv")

    assert len(result.jct_s) == 125
    assert result.mean_s == pytest.approx(7459.2, abs=0.05)
    assert max(result.jct_s) == 165_000.0


@pytest.mark.data
def test_arenas_own_search_on_the_pai_trace_ends_every_job_as_for_the_authors(
    data: Callable[[str], Path],
) -> None:
    result = simulate(data("arena") / "trace_pai.csv", policy="arena")

    assert len(result.jct_s) == 125
    assert result.mean_s == pytest.approx(2510.4, abs=0.05)
    assert max(result.jct_s) == 25_800.0


@pytest.mark.data
def test_work_that_counts_as_it_was_done_takes_arena_longer(
    data: Callable[[str], Path], tmp_path: Path
) -> None:
    honest = simulate(data("arena") / "trace_pai.csv", policy="arena", honest=True)
    path = tmp_path / "pai.csv"
    with path.open("w") as file:
        write_stretches(honest, "arena", file)

    assert honest.mean_s == pytest.approx(2841.6, abs=0.05)
    assert all(finding.level is not Severity.WRONG for finding in verify(read_runs(path)))


@pytest.mark.data
def test_the_mean_of_who_finished_in_time_is_found_out(
    data: Callable[[str], Path], tmp_path: Path
) -> None:
    result = simulate(data("arena") / "trace_philly.csv")
    path = tmp_path / "philly.csv"
    with path.open("w") as file:
        write_stretches(result, "fcfs", file)

    findings = {finding.check: finding for finding in verify(read_runs(path))}

    assert (len(result.jct_s), len(result.tasks)) == (590, 1938)
    assert [name for name in findings if findings[name].level is Severity.WRONG] == ["all jobs"]
    assert (
        findings["all jobs"].text
        == "1348 of 1938 jobs have no end, and the file does not mention it"
    )
    means = "of the finished alone: 83192 s; with the others it is at least 516474 s"
    assert findings["mean"].text == means
    assert findings["capacity"].text == "never above 1,280 GPUs"


def test_progress_counts_from_all_the_time_a_job_ran() -> None:
    task = ArenaTask("a", 0.0, 1000, "a10", 1, 2.0)

    assert [task.run(), task.run()] == [False, False]
    task.seconds = 1.0  # faster from now on, and by that from the beginning

    assert not task.run()
    assert task.steps - task.ran // task.seconds == 100.0
    assert task.steps - task.done == 400.0  # as it was done


SPEEDS = {
    0: {("v100", 4): 17.271, ("v100", 8): 35.466, ("a100", 4): 46.391, ("a40", 4): 18.346},
    1: {("v100", 4): 17.271, ("v100", 8): 35.466, ("a100", 2): 23.790, ("a100", 4): 46.391},
}


def test_a_job_goes_where_a_single_step_gains_most() -> None:
    search = ArenaSearch({"a100": 4, "v100": 8, "a40": 4, "a10": 0}, look_up)
    search.add_jobs(1)

    assert search.start(0, ("v100", 4))
    search.grow()

    assert search.standing.at == {0: ("a100", 4)}


def test_a_newcomer_takes_what_costs_the_others_least() -> None:
    search = ArenaSearch({"a100": 4, "v100": 8, "a40": 0, "a10": 0}, look_up)
    search.add_jobs(2)

    assert search.start(0, ("v100", 8))
    assert search.start(1, ("v100", 4))

    assert search.standing.at == {0: ("v100", 8), 1: ("a100", 4)}  # nobody has to be halved


def test_a_job_that_does_not_run_as_asked_for_gets_what_is_near() -> None:
    search = ArenaSearch({"a100": 4, "v100": 8, "a40": 0, "a10": 0}, look_up)
    search.add_jobs(2)

    assert search.start(1, ("a10", 8))

    assert search.standing.at == {1: ("a100", 4)}


def look_up(row: int, size: tuple[str, int]) -> float:
    return SPEEDS[row].get(size, 0.0)
