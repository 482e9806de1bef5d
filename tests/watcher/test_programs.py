"""Nobody can tell from a program's output, exit code or descriptors that it is watched."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from tests.watcher.programs import PROGRAMS
from tests.watcher.programs.program import Program
from weft.node.ranks.process import watcher_variables

ADDRESS = re.compile("0x[0-9a-f]+")
Ended = tuple[int, str, str]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[bytes]]:
    """What an agent is sent, its socket's path first."""
    path = str(tmp_path_factory.mktemp("agent") / "agent.sock")
    heard = [path.encode()]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        Path(path).parent.chmod(0o755)
        Path(path).chmod(0o777)
        listener.listen(64)
        listening = threading.Thread(target=_listen, args=(listener, heard), daemon=True)
        listening.start()
        yield heard
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as last:
            last.connect(path)
            last.sendall(b"end\n")
        listening.join(timeout=LIMIT_S)


def _listen(listener: socket.socket, heard: list[bytes]) -> None:
    while b"end\n" not in heard[-1]:
        conversation, _ = listener.accept()
        with conversation:
            heard.append(conversation.recv(65_536))


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
    name: str, python: str, agent: list[bytes], tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    if program.needs:
        python = sys.executable
    path = agent[0].decode() if program.agent else "/nowhere/agent.sock"

    bare = run(program, python, tmp_path / name, path, watch=False)
    watched = run(program, python, tmp_path / name, path, watch=True)

    assert watched == bare


def test_the_programs_are_watched(python: str, agent: list[bytes], tmp_path: Path) -> None:
    before = len(agent)

    run(PROGRAMS["says-nothing"], python, tmp_path / "bare", agent[0].decode(), watch=False)
    assert len(agent) == before
    run(PROGRAMS["says-nothing"], python, tmp_path / "watched", agent[0].decode(), watch=True)

    assert len(agent) > before + 1


def test_there_are_many_programs() -> None:
    assert len(PROGRAMS) >= 66
