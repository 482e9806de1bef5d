"""Every example prints exactly what lies beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import LIMIT_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_an_example_prints_what_lies_beside_it(script: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT_S
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == script.with_suffix(".out").read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_an_example_is_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) < 60
