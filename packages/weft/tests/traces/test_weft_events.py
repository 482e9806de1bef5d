"""A run's own event log is a workload: the same jobs, with the work they did."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.core.errors import TraceError
from weft.traces.read import load, recognise


def run(tmp_path: Path, policy: str = "srtf") -> tuple[Path, weft.Result]:
    path = tmp_path / "events.jsonl"
    result = weft.simulate("tiny-20", policy, "2x4:v100+1x4:t4", events=path, restart_cost=0.0)
    return path, result


def test_the_log_of_a_run_replays_as_the_same_workload(tmp_path: Path) -> None:
    path, first = run(tmp_path)

    again = weft.simulate(path, "srtf", "2x4:v100+1x4:t4", restart_cost=0.0)

    assert recognise(path).name == "weft-events"
    assert again["policies"]["srtf"]["jobs"] == first["policies"]["srtf"]["jobs"]
    assert again.mean("srtf", "gpu_hours_per_job") == pytest.approx(
        first.mean("srtf", "gpu_hours_per_job"), rel=0.02
    )


def test_a_line_that_is_no_event_is_named(tmp_path: Path) -> None:
    path, _ = run(tmp_path)
    path.write_text(path.read_text() + '{"at": 1, "event": "Nothing"}\n')

    with pytest.raises(TraceError, match=r"line \d+: not an event"):
        load(path)


def test_a_job_that_had_not_ended_has_a_lower_bound_as_length(tmp_path: Path) -> None:
    path, _ = run(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: len(lines) // 2]) + "\n")

    trace = load(path)

    assert any(truth.censored for _, truth in trace)
    assert all(truth.length > 0 for _, truth in trace)
