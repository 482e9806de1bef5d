"""A test is skipped for want of a system package or of public data, never of a Python package."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = [ROOT / "conftest.py", *ROOT.glob("tests/**/*.py"), *ROOT.glob("packages/**/tests/**/*.py")]
SKIPS = ("skip", "skipif", "importorskip")
PYTHON_PACKAGE = re.compile(r"\bpip install\b|importorskip")
SAMPLE = """
import pytest
@pytest.mark.parametrize("n", range(3))
def test_one(n): pytest.skip("needs x: apt-get install x")
@pytest.mark.skipif(True, reason="needs the public data set y")
def test_two(): pass
def test_three(): pass
"""


def calls_in(text: str) -> list[str]:
    """The sources of calls that skip a test."""
    if "skip" not in text:
        return []
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in SKIPS
    ]


@pytest.mark.parametrize(
    "text",
    [
        "pytest.importorskip('torch')",
        "pytest.skip('pip install torch')",
        "x = pytest.mark.skipif(find_spec('torch') is None, reason='pip install torch')",
    ],
)
def test_a_skip_for_want_of_a_python_package_is_found(text: str) -> None:
    assert any(PYTHON_PACKAGE.search(call) for call in calls_in(text))


def test_no_test_is_skipped_for_want_of_a_python_package() -> None:
    skips = {path: calls_in(path.read_text()) for path in TESTS}

    assert sum(map(len, skips.values())) > 30
    wrong = [
        f"{path.relative_to(ROOT)}: {call}"
        for path, calls in skips.items()
        for call in calls
        if PYTHON_PACKAGE.search(call)
    ]
    assert not wrong, "add the package to the extra `dev`, and import it"


def test_skips_are_counted_by_reason_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-n", "1"]

    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert "     3  needs x: apt-get install x\n     1  needs the public data set y\n" in ran.stdout
    assert ran.returncode == 0, ran.stdout
