"""The same random cases in every run, others in CI, and the same again by a printed command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.seeds import VARIABLE

ROOT = Path(__file__).resolve().parents[2]
DRAWS = """
from hypothesis import given, strategies as st
from tests.seeds import seeds

def test_draws():
    print("own", *seeds(3))
    @given(st.integers(0, 10**9))
    def drawn(number):
        print(number, end=" ")
    drawn()
    assert False
"""


def draw(folder: Path, *options: str, **variables: str) -> tuple[str, str]:
    """What a failing test drew, and what its failure says of doing so again."""
    (folder / "test_draws.py").write_text(DRAWS)
    inherited = {k: v for k, v in os.environ.items() if k not in ("CI", VARIABLE)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.seeds", "-p", "no:cacheprovider"]
    command += ["-p", "no:schemathesis", "--rootdir", str(folder), *options, "test_draws.py"]
    env = {**inherited, **variables, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    drawn = re.search(r"^own[ \d]+\n[ \d]+$", done.stdout, re.MULTILINE)
    assert drawn, done.stdout
    again = re.search(rf"^{VARIABLE}=\d+ pytest.*$", done.stdout, re.MULTILINE)
    return drawn[0], again[0] if again else ""


def test_cases_stay_the_same_unless_others_are_wanted(tmp_path: Path) -> None:
    drawn, again = draw(tmp_path)

    assert drawn.startswith("own 0 1 2\n")
    assert not again


def test_cases_of_ci_differ_and_are_drawn_again_as_printed(tmp_path: Path) -> None:
    drawn, again = draw(tmp_path, CI="true")
    other, _ = draw(tmp_path, CI="true")
    setting, _, test = again.partition(" pytest ")

    assert test == "test_draws.py::test_draws"
    assert drawn.splitlines()[0] != other.splitlines()[0]
    assert drawn.splitlines()[1] != other.splitlines()[1]
    assert draw(tmp_path, **dict([setting.split("=")])) == (drawn, again)


def test_a_thorough_run_draws_others_too(tmp_path: Path) -> None:
    _, again = draw(tmp_path, "--hypothesis-profile=thorough")

    assert again.endswith(" pytest --hypothesis-profile=thorough test_draws.py::test_draws")
