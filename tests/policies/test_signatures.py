"""Every published system beats others on workloads of its kind, in its own objective."""

from __future__ import annotations

import pytest
from benchmarks.signatures import SEEDS, SIGNATURES, gains

# Of these one seed takes a second or so.
QUICK = ("allox", "antman", "CES", "elasticflow", "fgd", "gandiva", "qssf", "singularity", "smd")
CASES = [
    pytest.param(name, seed, marks=() if name in QUICK and not seed else pytest.mark.slow)
    for name in SIGNATURES
    for seed in SEEDS
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_system_is_as_much_better_as_stated(name: str, seed: int) -> None:
    signature = SIGNATURES[name]

    reached = gains(signature, seed)

    assert {rival for rival, gain in reached.items() if gain < signature.rivals[rival]} == set()
