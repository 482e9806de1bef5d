"""A job's name in `ps`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from weft.node.ranks.process import link_program, short_name
from weft.wire.attempt import AttemptSpec

ENV = {"PATH": os.environ["PATH"]}


def spec(folder: Path, name: str) -> AttemptSpec:
    return AttemptSpec("job-1", 1, ("x",), str(folder), str(folder), (0,), name=name)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("train", "train"),
        ("a/b c", "a_b_c"),
        ("vision:resnet-50-long", "vision:resnet-5"),
        ("é" * 20, "é" * 7),
        ("..", "job"),
        ("", "job"),
    ],
)
def test_a_name_is_cut_to_what_the_kernel_keeps(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_program_is_linked_under_the_jobs_name(tmp_path: Path) -> None:
    link = link_program(tmp_path, spec(tmp_path, "sweep"), (sys.executable, "x.py"), ENV)

    assert Path(link) == tmp_path / "bin" / "sweep"
    assert Path(link).samefile(sys.executable)
    again = link_program(tmp_path, spec(tmp_path, "sweep"), (sys.executable, "x.py"), ENV)
    assert again == link


def test_scripts_and_what_is_not_there_are_started_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    wanted = spec(tmp_path, "sweep")

    assert link_program(tmp_path, wanted, ("./run.sh",), ENV) == ""
    assert link_program(tmp_path, wanted, ("no-such-program",), ENV) == ""
    assert link_program(tmp_path, wanted, ("./none",), ENV) == ""
