"""`~somebody` of nobody is a file that is not there, wherever a path can be typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import weft
from weft.cli.main import cli

SRC = Path(weft.__file__).parent  # as it is installed, which need not be a checkout
OF_NOBODY = "~no-such-user-here/file"
SIMULATE = ("simulate", "tiny-20", "--jobs", "5")


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", f"{OF_NOBODY}.csv"),
        (*SIMULATE, "--cluster", f"{OF_NOBODY}.toml"),
        (*SIMULATE, "--policy", f"{OF_NOBODY}.py"),
        (*SIMULATE, "--profiles", OF_NOBODY),
        ("plan", f"{OF_NOBODY}.yaml"),
    ],
    ids=" ".join,
)
def test_it_is_said_in_words(command: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, list(command))

    assert ran.exit_code != 0
    assert ran.exception is None or isinstance(ran.exception, SystemExit), repr(ran.exception)


def test_paths_are_expanded_in_one_place() -> None:
    others = [path for path in SRC.rglob("*.py") if "expanduser" in path.read_text()]

    assert [path.relative_to(SRC).as_posix() for path in others] == ["core/paths.py"]
