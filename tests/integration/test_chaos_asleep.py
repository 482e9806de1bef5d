"""A short version of `benchmarks.asleep.chaos`: whatever is killed, nothing is lost or left."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.asleep.chaos import run


@pytest.mark.slow
def test_random_freezes_suspends_and_kills_lose_nothing(tmp_path: Path) -> None:
    result = run(tmp_path / "room", rounds=20, seed=5)

    assert not result["wrong"]
    assert not result["frozen"]
    assert result["trainings"]
