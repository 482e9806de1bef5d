"""Memory and speed of plans are measured by training for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plan_profiles import TINY, Gpt, differ

ROOT = Path(__file__).resolve().parents[2]


def test_every_plan_is_measured_and_trains_the_same(tmp_path: Path) -> None:
    out = tmp_path / "plans.json"
    plans = ["dp", "ga4-gc", "offload", "tp2"]
    arguments = ["--cpu", "--each", "0", "--out", str(out), "--plans", *plans]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.plan_profiles", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=600,
    )
    *good, bad = json.loads(out.read_text())["rows"]
    assert [row["plan"] for row in good] == plans[:3]
    assert all(row["step_s"] > 0.0 and row["host_gb"] > 0.0 for row in good)
    assert "does not fit 1 ranks" in bad["error"]
    assert good[1]["losses"] == pytest.approx(good[0]["losses"], rel=1e-4)
    assert good[2]["losses"] == pytest.approx(good[0]["losses"], rel=1e-4)


def test_a_plan_that_trains_something_else_is_named() -> None:
    rows: list[dict[str, Any]] = [
        {"model": "a", "plan": "dp", "losses": [5.0, 4.0]},
        {"model": "a", "plan": "gc", "losses": [5.01, 4.0]},
        {"model": "a", "plan": "ga4", "losses": [5.0, 4.5]},
        {"model": "b", "plan": "dp", "losses": [9.0]},
        {"model": "b", "plan": "gc", "error": "too little memory"},
    ]
    assert differ(rows) == ["a ga4"]


def test_weights_are_counted() -> None:
    assert sum(weight.numel() for weight in Gpt(TINY).parameters()) == TINY.params
