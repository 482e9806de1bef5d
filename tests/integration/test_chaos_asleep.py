"""A short version of `benchmarks.asleep.chaos`: whatever is killed, nothing is lost or left."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.asleep.chaos import run


@pytest.mark.parametrize(
    ("rounds", "seed"),
    [(40, 5), *(pytest.param(300, seed, marks=pytest.mark.slow) for seed in (1, 6, 7))],
)
def test_random_freezes_suspends_and_kills_lose_nothing(
    tmp_path: Path, rounds: int, seed: int
) -> None:
    result = run(tmp_path / "room", rounds=rounds, seed=seed)

    assert not result["wrong"]
    assert not result["frozen"]
    assert result["trainings"]
