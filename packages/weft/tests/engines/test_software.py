"""Environments as lines for bash."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weft.core.model.launch import Software, SoftwareKind
from weft.engines.attempts.request import activation, preparation

ALL = [
    Software(SoftwareKind.VENV, "a b/.venv"),
    Software(SoftwareKind.CONDA, "torch'26"),
    Software(SoftwareKind.UV, "project"),
    Software(SoftwareKind.UV, "req.txt"),
]


@pytest.mark.parametrize("software", ALL)
def test_the_lines_are_bash_whatever_the_name(software: Software, tmp_path: Path) -> None:
    script = f"{preparation(software)}\n{activation(software)}\n"

    ran = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)

    assert ran.stderr == ""


@pytest.mark.parametrize("software", ALL[:3])
def test_what_is_not_there_is_said(software: Software, tmp_path: Path) -> None:
    script = f"{preparation(software)}\n{activation(software)}\n"

    ran = subprocess.run(
        ["/bin/bash", "-eo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/nowhere"},
    )

    assert ran.returncode == 127
    assert "no virtual environment in a b/.venv" in ran.stderr or "not installed" in ran.stderr


def test_a_conda_environment_that_is_not_there_is_said(tmp_path: Path) -> None:
    conda = tmp_path / "conda"
    conda.write_text("#!/bin/sh\necho 'conda() { echo EnvironmentNameNotFound >&2; return 1; }'\n")
    conda.chmod(0o755)

    ran = subprocess.run(
        ["/bin/bash", "-c", f"{activation(ALL[1])}\necho went on\n"],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )

    assert (ran.returncode, ran.stdout) == (127, "")
    assert "no conda environment torch'26" in ran.stderr
