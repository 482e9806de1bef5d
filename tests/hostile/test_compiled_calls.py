"""Compiled functions refuse what their twins in Python would not accept, and always return."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.twins.twins import twins

ROOT = Path(__file__).parents[2]


def test_no_arguments_crash_it_or_keep_it_for_ever() -> None:
    twins("hold")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hostile.compiled_calls", "0", "6000"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-2000:]}"
    assert "6000 calls, 0 wrong" in ran.stdout
