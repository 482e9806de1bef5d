"""Runs that have ended are kept: read again only where nothing that they depend on has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.app.simulate import finished_runs, run
from weft.app.simulate.api import compare
from weft.app.simulate.run import run_one
from weft.app.simulate.setup import Setup
from weft.core.errors import WeftError
from weft.sim.result import Outcome, Result

TRACE = "id,submit_s,duration_s,num_gpus\n" + "".join(
    f"j{i},{60 * i},{300 + 40 * (i % 5)},{1 + i % 4}\n" for i in range(12)
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The policies that were run, not read."""
    done: list[str] = []

    def counted(setup: Setup, report: object = None) -> Outcome:
        done.append(setup.policy_name)
        return run_one(setup, report)  # type: ignore[arg-type]

    monkeypatch.setattr(finished_runs, "run_one", counted)
    return done


def tried(folder: Path, *policies: str, workload: str = "tiny-20", **more: object) -> Result:
    return compare(workload, policies, "2x4:v100", keep=folder / "runs", **more)  # type: ignore[arg-type]


def test_what_ended_is_read_and_equal_to_the_last_digit(tmp_path: Path, runs: list[str]) -> None:
    first = tried(tmp_path, "fifo", "srtf", seeds=2)
    runs.clear()

    again = tried(tmp_path, "fifo", "las", "srtf", seeds=2)

    assert runs == ["las", "las"]
    for policy in ("fifo", "srtf"):
        for ours, theirs in zip(again.outcomes[policy], first.outcomes[policy], strict=True):
            assert repr(ours.as_dict(per_job=True)) == repr(theirs.as_dict(per_job=True))
            assert (ours.per_job.ftf == theirs.per_job.ftf).all()
            assert (ours.series.used == theirs.series.used).all()


def test_other_options_and_other_jobs_are_run(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    tried(tmp_path, "srtf", workload=str(trace))
    tried(tmp_path, "srtf", workload=str(trace), restart_cost=7.0)
    tried(tmp_path, "srtf:place=spread", workload=str(trace))
    trace.write_text(TRACE.replace("j3,180,420", "j3,180,421"))
    monkeypatch.setattr(run, "_load", run._load.__wrapped__)
    tried(tmp_path, "srtf", workload=str(trace))

    assert len(runs) == 4


def test_a_comparison_that_was_stopped_goes_on(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = vars(finished_runs)["run_one"]

    def stop(setup: Setup, report: object = None) -> Outcome:
        if setup.policy_name == "las":
            raise WeftError("stopped here")
        outcome: Outcome = counted(setup, report)
        return outcome

    with monkeypatch.context() as patched:
        patched.setattr(finished_runs, "run_one", stop)
        with pytest.raises(WeftError, match="stopped here"):
            tried(tmp_path, "fifo", "las", "srtf")
    result = tried(tmp_path, "fifo", "las", "srtf")

    assert runs == ["fifo", "las", "srtf"]
    assert list(result.outcomes) == ["fifo", "las", "srtf"]


def test_changed_sources_of_weft_are_another_run(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried(tmp_path, "fifo")
    monkeypatch.setattr(finished_runs, "_sources", lambda: "another version")
    tried(tmp_path, "fifo")

    assert runs == ["fifo", "fifo"]
