"""Every fault at random moments: nothing is lost, nothing runs twice, the accounts agree."""

from __future__ import annotations

from pathlib import Path

from benchmarks.crash_soak import soak


def test_nothing_is_lost_doubled_or_left_behind_whatever_happens(tmp_path: Path) -> None:
    seen = soak(tmp_path / "soak", faults=6, seed=3, pause_s=0.3, longest=10)

    assert sum(seen["faults"].values()) == 6
    assert seen["accepted"] >= 3
    assert seen["starts"] > 0
    assert seen["decisions"] > 0
