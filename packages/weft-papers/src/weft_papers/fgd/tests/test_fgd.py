"""Fragmentation as the authors' own unit tests have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.formulas.fragmentation import JobClass, fragmented

pytestmark = pytest.mark.data


def test_the_authors_cases_come_out_alike(data: Callable[[str], Path]) -> None:
    known = json.loads(data("fgd/unit_cases.json").read_text())
    classes = [
        JobClass(
            typical_pod["weight_pct"] / 100.0,
            typical_pod["gpus"],
            typical_pod["gpu_milli"] / 1000.0,
            typical_pod["cpu_milli"] / 1000.0,
            tuple(filter(None, typical_pod["gpu_types"].split("|"))),
        )
        for typical_pod in known["typical_pods"]
    ]

    for case in known["fragmentation"]:
        left = [part / 1000.0 for part in case["gpu_left"]]
        fragments = fragmented(left, case["cpu_left"] / 1000.0, case["gpu_type"], classes)
        assert 1000.0 * fragments == pytest.approx(case["expected"], abs=0.01)

    first = known["fragmentation"][0]
    left = [part / 1000.0 for part in first["gpu_left"]]
    alone = fragmented(left, first["cpu_left"] / 1000.0, first["gpu_type"], classes[:1])
    assert 1000.0 * alone == pytest.approx(251.91, abs=0.01)
