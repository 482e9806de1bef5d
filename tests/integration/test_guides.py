"""Commands of the guides as a person types them, in a shell, against a real service.

`sh` blocks of the pages below are run line by line in a folder with the page's files and the
examples. Commands that go on until Ctrl-C are given a moment, and Ctrl-C.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from weft.cli.commands.cluster.demo import end_all
from weft.cli.connect.client import ServiceClient
from weft.cli.connect.own_service import own_service

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ("--engine", "local:cpu=true,slots=2,warm=false", "--policy", "fifo")
OTHERS = ("order-jobs", "sweeps", "sessions", "job-files", "quotas")
PAGES = ["README.md", "docs/tutorials/first-job.md", *(f"docs/how-to/{name}.md" for name in OTHERS)]
OURS = re.compile(r"^(weft serve|source|make|git) ")  # the service is up, and this is set up
GOES_ON = re.compile(r"^weft forward\b")  # where nobody looks `weft top` is one look
MOMENT_S = 3.0  # after the first line
INTERRUPTED = 130
LIMIT_S = 600.0
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def lines(page: str) -> list[str]:
    typed = [line for block in BLOCK.findall(page) for line in block.splitlines()]
    return [line for line in typed if line.strip() and not OURS.match(line)]


def run(line: str, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """A line's exit code and what it printed; nothing is typed into it."""
    process = subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    if GOES_ON.search(line):
        assert process.stdout is not None
        output = process.stdout.readline()  # it is up
        with suppress(subprocess.TimeoutExpired):
            process.wait(MOMENT_S)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
        return 0 if process.returncode in (0, INTERRUPTED) else process.returncode, output + rest
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_guide_runs_as_written(name: str, tmp_path: Path) -> None:
    page = (ROOT / name).read_text()
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    for file, text in FILE.findall(page):
        (folder / file).write_text(text)
    shim = tmp_path / "bin" / "weft"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m weft "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    typed = lines(page)

    with own_service(tmp_path / "state", free_port(), *ENGINE) as client:
        env = {**os.environ, "WEFT_URL": client.url, "PATH": path, "SHELL": "/bin/bash"}
        try:
            for line in ("weft run -- true", *typed):  # there was a job before
                code, output = run(line, folder, env)
                assert code == 0, f"{line}\n{output}"
                assert "Traceback" not in output, output
        finally:
            end_all(ServiceClient(client.url), tmp_path / "state")

    assert typed
