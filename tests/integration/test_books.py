"""Everything that is shown is a fold of the log: no restart changes a number."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.books import compare_books


@pytest.mark.parametrize("seed", [0])  # `benchmarks.books` draws others
def test_every_number_of_every_route_is_the_same_after_a_restart(tmp_path: Path, seed: int) -> None:
    seen = compare_books(tmp_path, 40, seed)

    assert seen.moments and seen.restarts and seen.values > 1_000
    assert not seen.wrong, seen.wrong[:10]
