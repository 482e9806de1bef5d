"""What a researcher does in Python: seeds, intervals, one row a job, and a warning in time."""

from __future__ import annotations

import pytest

import weft
from weft.core.errors import InvalidConfig


def test_seeds_are_counted_and_intervals_are_in_python_and_json() -> None:
    result = weft.compare("philly", ["fifo", "srtf"], "2x4:v100", seeds=3, jobs=60, load=1.2)

    assert result.seeds == (0, 1, 2)
    mean, half = result.interval("fifo", "avg_jct_h")
    each = [one.metrics["avg_jct_h"] for one in result.outcomes["fifo"]]
    assert mean == pytest.approx(sum(each) / 3)
    assert half > 0.0
    told = result.as_dict()["policies"]["fifo"]
    assert told["interval95"]["avg_jct_h"] == pytest.approx(half, rel=1e-6)
    with pytest.raises(InvalidConfig, match="no seed"):
        weft.compare("philly", "fifo", "2x4:v100", seeds=0, jobs=10)


def test_a_frame_of_jobs_has_what_they_asked_for() -> None:
    pytest.importorskip("pandas")

    frame = weft.compare("philly", "fifo", "2x4:v100", jobs=20).to_frame(per_job=True)

    assert {"gpus", "user", "model", "kind", "start_s", "policy", "seed"} <= {*frame.columns}
    assert len(frame) == 20
    assert frame["gpus"].min() > 0


def test_a_workload_in_which_nobody_waits_says_so() -> None:
    busy = weft.compare("philly", "fifo", "1x4:v100", jobs=80, load=3.0)
    assert busy.note == ""

    quiet = weft.compare("philly", "fifo", "512x8:v100", jobs=30, load=0.9)

    assert "nobody waits" in quiet.note
