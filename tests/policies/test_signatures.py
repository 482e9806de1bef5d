"""Every published system beats others on workloads of its kind, in its own objective."""

from __future__ import annotations

import pytest
from benchmarks.signatures import SEEDS, SIGNATURES, gains


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_system_is_as_much_better_as_stated(name: str, seed: int) -> None:
    signature = SIGNATURES[name]

    reached = gains(signature, seed)

    assert {rival for rival, gain in reached.items() if gain < signature.rivals[rival]} == set()
