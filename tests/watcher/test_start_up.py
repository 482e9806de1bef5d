"""The watcher gets into Python programs of all kinds, and in nobody's way."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.watcher.listening import run, run_python
from weft.node.ranks.process import WATCHER

# Counts by a progress bar: no framework to import, so these tests are quick.
BAR = """
from tqdm import tqdm
import time
for _ in tqdm(range(40), mininterval=0.01): time.sleep(0.002)
"""
WATCHED = "import sys; print('_weft_watch' in sys.modules)"


def test_a_bar_counts_where_nothing_else_does() -> None:
    ran = run_python(BAR)

    assert ran.code == 0, ran.err
    assert (ran.last.steps, ran.last.total, ran.last.unit) == (40, 40, "bar")
    assert (ran.last.job, ran.last.attempt, ran.last.rank) == ("job", 3, 0)


def test_an_isolated_python_is_not_watched_and_not_broken() -> None:
    for option in ("-I", "-S", "-E"):
        ran = run_python("print('works')", option)
        assert (ran.code, ran.out, ran.counted) == (0, "works\n", []), option


def test_a_process_that_nobody_asked_for_is_not_watched() -> None:
    ran = run([sys.executable, "-c", WATCHED], watch=False)

    assert (ran.code, ran.out) == (0, "False\n")


def test_the_program_sees_the_path_that_it_would_have_had(tmp_path: Path) -> None:
    code = "import sys, json; print(json.dumps(sys.path))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    plain = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )

    ran = run_python(code, env={"PYTHONPATH": str(tmp_path)})

    assert ran.out == plain.stdout


def test_the_environments_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("OWN = True\nprint('own start-up')\n")
    code = "import sitecustomize; print(sitecustomize.OWN, sitecustomize.__file__)\n" + BAR

    ran = run_python(code, env={"PYTHONPATH": str(tmp_path)})

    assert ran.out == f"own start-up\nTrue {tmp_path / 'sitecustomize.py'}\n"
    assert ran.last.steps == 40


def test_an_error_in_the_environments_own_sitecustomize_is_told_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('mine')\n")

    ran = run_python("print('goes on')", env={"PYTHONPATH": str(tmp_path)})

    assert ran.out == "goes on\n"
    assert "Error in sitecustomize" in ran.err
    assert "mine" in ran.err


def test_usercustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "usercustomize.py").write_text("print('user')\n")
    base = getattr(sys, "_base_executable", sys.executable)  # environments have no user site

    ran = run(
        [base, "-c", "import site; print(site.ENABLE_USER_SITE)"], {"PYTHONPATH": str(tmp_path)}
    )

    assert ran.out == "user\nTrue\n"


def test_a_script_that_crashes_crashes_alike() -> None:
    code = "import sys\nfrom tqdm import tqdm\nfor i in tqdm(range(9)):\n    1 / (5 - i)\n"
    plain = run([sys.executable, "-c", code], watch=False)

    ran = run_python(code)

    assert (ran.code, plain.code) == (1, 1)
    assert ran.err.splitlines()[-1] == plain.err.splitlines()[-1]
    assert "weft" not in ran.err.splitlines()[-1]


def test_a_program_that_becomes_another_is_counted_anew() -> None:
    code = f"import os, sys\n{BAR}\nos.execv(sys.executable, [sys.executable, '-c', {BAR!r}])"

    ran = run_python(code)

    assert ran.code == 0, ran.err
    assert len({count.pid for count in ran.counted}) == 1
    assert ran.last.steps == 40


def test_a_child_counts_for_itself() -> None:
    code = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {BAR!r}], check=True)\n"
        "import os\n"
        f"exec({BAR!r})\n"
        "if os.fork() == 0:\n"
        f"    exec({BAR!r})\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )

    ran = run_python(code)

    assert ran.code == 0, ran.err
    assert len({count.pid for count in ran.counted}) >= 2
    assert max(count.steps for count in ran.counted) == 40  # a fork does not go on with our count


def test_a_program_without_python_inside_is_left_alone(tmp_path: Path) -> None:
    frozen = tmp_path / "program"  # as an executable that brings its own interpreter, or none
    frozen.write_text("#!/bin/sh\necho $WEFT_JOB\n")
    frozen.chmod(0o755)

    ran = run([str(frozen)])

    assert (ran.code, ran.out, ran.counted) == (0, "job\n", [])


def test_an_error_of_the_watcher_is_one_line_and_the_program_goes_on() -> None:
    spoil = "import sys\nsys.modules['_weft_watch.counting'].Counter.bar = None\n"

    ran = run_python(f"{spoil}{BAR}\nprint('goes on')")

    assert (ran.code, ran.out) == (0, "goes on\n")
    assert ran.err.count("weft: this process is only partly watched: TypeError") == 1


def test_an_agent_that_is_gone_is_nobodys_trouble() -> None:
    ran = run_python(BAR, env={"WEFT_AGENT": "/nowhere/agent.sock"})

    assert (ran.code, ran.counted) == (0, [])
    assert "weft" not in ran.err


def test_threads_and_sockets_of_the_program_are_its_own() -> None:
    code = BAR + ("import threading, os\nprint(threading.active_count(), len(tqdm._instances))\n")

    ran = run_python(code, env={"TQDM_DISABLE": ""})

    assert ran.code == 0, ran.err
    assert int(ran.out.split()[0]) <= 2  # the program's, and tqdm's monitor


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_other_pythons_are_watched_alike(version: str, tmp_path: Path) -> None:
    pythons = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    if not pythons:
        pytest.skip(f"no Python {version} here")
    package = tmp_path / "tqdm"
    package.mkdir()
    (package / "__init__.py").write_text("from .std import tqdm\n")
    (package / "std.py").write_text(
        "class tqdm:\n"
        "    disable = False\n"
        "    def __init__(self, total): self.n, self.total = 0, total\n"
        "    def update(self, n=1): self.n += n\n"
        "    def close(self): self.disable = True\n"
    )
    code = "from tqdm import tqdm\nbar = tqdm(7)\nfor _ in range(7): bar.update()"

    ran = run([str(pythons[0]), "-c", code], {"PYTHONPATH": str(tmp_path)})

    assert (ran.code, ran.err) == (0, "")
    assert (ran.last.steps, ran.last.total) == (7, 7)


def test_the_watcher_needs_nothing_but_the_standard_library() -> None:
    imported = set()
    for path in WATCHER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).split(".")[0])

    assert imported <= {*sys.stdlib_module_names, "_weft_watch", "sitecustomize"}
