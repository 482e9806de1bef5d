"""Weft without compiled parts: the same results, chosen by WEFT_PURE or where nothing was built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests.golden.crowd import read_golden
from weft.native import native

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "packages" / "weft"
SOURCES = PROJECT / "src" / "weft" / "native"
COMPILED = ("srsf", "srtf", "tiresias", "sia", "weft", "pollux", "muri", "quota|weft")


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env=os.environ | env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_runs_in_python_have_the_known_results(tmp_path: Path) -> None:
    names = [name for name in read_golden() if name.split(" in ")[0] in COMPILED]
    code = (
        "from pathlib import Path; from tests.golden.crowd import describe, read_golden\n"
        "from weft.native import native; assert native is None; known = read_golden()\n"
        f"for name in {names!r}:\n"
        f"    line = describe(*name.split(' in '), Path({str(tmp_path)!r}))\n"
        "    assert line == known[name], name\n"
    )

    done = run("-c", code, WEFT_PURE="1")

    assert len(names) >= len(COMPILED) - 1
    assert done.returncode == 0, done.stderr


def test_a_module_of_other_sources_is_left_alone(tmp_path: Path) -> None:
    if native is None:
        pytest.skip("weft.native is not compiled: apt-get install gcc, or unset WEFT_PURE")
    shutil.copytree(Path(weft.__file__).parent, tmp_path / "weft")
    with (tmp_path / "weft" / "native" / "rows.c").open("a") as source:
        source.write("/* changed */\n")

    done = run("-c", "from weft.native import *; print(native, why_not)", PYTHONPATH=str(tmp_path))

    assert done.stdout.startswith("None it was compiled from other sources"), done.stderr


@pytest.mark.skipif(not SOURCES.exists(), reason="the sources in C are not here")
def test_without_a_compiler_people_are_told_that_nothing_is_compiled(tmp_path: Path) -> None:
    build = (PROJECT / "build_native.py").read_text()
    (tmp_path / "build_native.py").write_text(build)
    shutil.copytree(
        SOURCES, tmp_path / "src" / "weft" / "native", ignore=shutil.ignore_patterns("*.so")
    )
    code = "import build_native; print(build_native.try_to_build())"

    done = run("-c", code, PYTHONPATH=str(tmp_path), CC="/nonexistent/cc")

    assert done.stdout == "None\n"
    assert "weft.native was not compiled; Weft works without it, slower" in done.stderr
