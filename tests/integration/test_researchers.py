"""What a researcher does in Python: seeds, intervals, one row a job, and a warning in time."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import weft
from weft.core.errors import InvalidConfig


def test_seeds_are_counted_and_intervals_are_in_python_and_json() -> None:
    result = weft.compare("philly", ["fifo", "srtf"], "2x4:v100", seeds=3, jobs=60, load=1.2)

    assert result.seeds == (0, 1, 2)
    mean, half = result.interval("fifo", "avg_jct_h")
    each = [outcome.metrics["avg_jct_h"] for outcome in result.outcomes["fifo"]]
    assert mean == pytest.approx(sum(each) / 3)
    assert half > 0.0
    entry = result.as_dict()["policies"]["fifo"]
    assert entry["interval95"]["avg_jct_h"] == pytest.approx(half, rel=1e-6)
    with pytest.raises(InvalidConfig, match="no seed"):
        weft.compare("philly", "fifo", "2x4:v100", seeds=0, jobs=10)


def test_a_frame_of_jobs_has_what_they_asked_for() -> None:
    frame = weft.compare("philly", "fifo", "2x4:v100", jobs=20).to_frame(per_job=True)

    assert {"gpus", "user", "model", "kind", "start_s", "policy", "seed"} <= {*frame.columns}
    assert len(frame) == 20
    assert frame["gpus"].min() > 0


def test_a_workload_in_which_nobody_waits_says_so() -> None:
    busy = weft.compare("philly", "fifo", "1x4:v100", jobs=80, load=3.0)
    assert busy.note == ""

    quiet = weft.compare("philly", "fifo", "512x8:v100", jobs=30, load=0.9)

    assert "hardly a job waits" in quiet.note
    assert quiet.note in quiet._repr_html_()

    done = replace(quiet.outcomes["fifo"][0], metrics={"avg_queue_h": 0.017, "avg_jct_h": 5.2})
    assert replace(quiet, outcomes={"fifo": (done,)}).note  # a minute of five hours is nothing


def test_a_notebook_shows_one_bar_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[int]()

    class Bar:
        """As IPython.display.ProgressBar: setting `progress` draws it anew."""

        def __init__(self, total: int) -> None:
            assert total == 100

        def display(self) -> None:
            shown.append(0)

        def __setattr__(self, name: str, value: int) -> None:
            shown.append(value)

    display = SimpleNamespace(ProgressBar=Bar)
    monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython.display", display)

    weft.compare("philly", "fifo", "1x4:v100", jobs=80, load=3.0, seeds=2)

    assert shown[0] == 0
    assert shown[-1] == 100
    assert shown == sorted({*shown})  # no step twice: each is kept in the notebook's file
