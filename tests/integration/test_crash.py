"""Kill -9 at random moments: nothing is lost, nothing runs twice, the accounts agree."""

from __future__ import annotations

from pathlib import Path

from benchmarks.crash_soak import soak


def test_nothing_is_lost_when_service_agents_and_ranks_are_killed(tmp_path: Path) -> None:
    seen = soak(tmp_path / "soak", faults=12, seed=3, pause_s=0.3, longest=10)

    assert sum(seen["faults"].values()) == 12
    assert seen["accepted"] >= 5
    assert seen["starts"] >= seen["jobs"] - seen["cancelled"]
