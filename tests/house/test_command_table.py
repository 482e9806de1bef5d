"""The table of commands: what `weft --help` says of each, without importing any."""

from __future__ import annotations

import os
import subprocess
import sys
from inspect import getdoc
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import COMMANDS, commands

PLUGIN = """
def greet(name: str = "you") -> None:
    \"\"\"Say hello from a plug-in.\"\"\"
    print(f"hello {name}")
"""


def run(*args: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **env},
    )
    return done.stdout


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_table_says_what_the_command_says_of_itself(entry: Any) -> None:
    command = entry.load()

    help_text = getdoc(command.callback) if command.callback else command.help

    assert (help_text or "").splitlines()[0] == entry.summary


def test_every_module_of_commands_is_in_the_table() -> None:
    folder = (
        Path(__file__).resolve().parents[2]
        / "packages"
        / "weft"
        / "src"
        / "weft"
        / "cli"
        / "commands"
    )
    there = {path.stem for path in folder.rglob("*.py")} - {"__init__"}

    named = {
        (command.where or command.name.replace("-", "_")).partition(":")[0] for command in COMMANDS
    }

    assert named == there


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys; sys.argv = ['weft', '--help']; from weft.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in sys.modules if m.startswith('weft.cli.commands.')])"
    )

    done = run("-c", code)

    assert done.strip().splitlines()[-1] == "[]"
    assert all(entry.name in done and entry.summary in done for entry in COMMANDS)


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys; sys.argv = ['weft', 'cancel', '--help']; from weft.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in sys.modules if m.startswith('weft.cli.commands.') "
        "and m.count('.') > 3])"
    )

    assert run("-c", code).strip().splitlines()[-1] == "['weft.cli.commands.jobs.change']"


def test_a_plug_in_adds_a_command_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "greeting.py").write_text(PLUGIN)
    about = tmp_path / "greeting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[weft.commands]\ngreet = greeting:greet\n")

    listed = run("-m", "weft", "--help", PYTHONPATH=str(tmp_path))
    done = run("-m", "weft", "greet", "--name", "weaver", PYTHONPATH=str(tmp_path))

    assert "Say hello from a plug-in." in listed
    assert done == "hello weaver\n"


def test_an_unknown_command_is_answered_with_the_closest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weft", "jbos"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "jobs" in done.stderr


def test_a_typer_of_several_commands_is_one_line_too() -> None:
    loaded = commands().load_all()

    assert {"create", "list", "revoke"} <= set(loaded["token"].commands)
