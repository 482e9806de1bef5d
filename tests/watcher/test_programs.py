"""Nobody can tell from a program's output, exit code or descriptors that it is watched."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from tests.watcher.listening import Listener
from tests.watcher.programs import PROGRAMS
from tests.watcher.programs.program import Program
from weft.node.ranks.process import watcher_variables

ADDRESS = re.compile("0x[0-9a-f]+")
Ended = tuple[int, str, str]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent's socket for all programs."""
    path = tmp_path_factory.mktemp("agent") / "agent.sock"
    with Listener(path):
        path.parent.chmod(0o755)
        path.chmod(0o777)
        yield str(path)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with nothing beside it, which starts quickly."""
    home = tmp_path_factory.mktemp("python")
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (home / "bin").mkdir()
    (home / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
    )
    (home / "bin" / "python").symlink_to(base)
    return str(home / "bin" / "python")


def run(program: Program, python: str, folder: Path, agent: str, *, watch: bool) -> Ended:
    """The program in a fresh folder, always of the same name."""
    folder.mkdir()
    program.write(folder)
    here = {"PYTHONPATH": str(folder), "WEFT_AGENT": agent, "WEFT_JOB": "job", "WEFT_ATTEMPT": "1"}
    outer = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env = {**outer, **here, **program.env}
    if watch:
        env |= watcher_variables(env["PYTHONPATH"])
    command = [python, *(program.command or (*program.options, "program.py"))]
    if program.shell:
        command = ["/bin/sh", "-c", f"{program.shell}; exec {shlex.join(command)}"]
    ran = subprocess.run(
        command,
        env=env,
        cwd=folder,
        input=program.stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    folder.rename(folder.with_name(f"{folder.name}-{watch}"))
    return ran.returncode, ran.stdout, ADDRESS.sub("0x", ran.stderr)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_not_notice_that_it_is_watched(
    name: str, python: str, agent: str, tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    if program.needs:
        python = sys.executable
    path = agent if program.agent else "/nowhere/agent.sock"

    bare = run(program, python, tmp_path / name, path, watch=False)
    watched = run(program, python, tmp_path / name, path, watch=True)

    assert watched == bare


@pytest.mark.parametrize("watch", [False, True])
def test_the_programs_are_watched(watch: bool, python: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"

    with Listener(path) as listener:
        run(PROGRAMS["says-nothing"], python, tmp_path / "folder", str(path), watch=watch)

    assert (len(listener.heard) > 1) == watch


def test_there_are_many_programs() -> None:
    assert len(PROGRAMS) >= 66
