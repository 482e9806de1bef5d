"""What is released: a dated changelog without doubles, and an sdist with all that tests read."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from weft.version import __version__

ROOT = Path(__file__).resolve().parents[2]
CHANGES = (ROOT / "CHANGELOG.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# What is in a checkout and belongs into no release.
LEFT_OUT = {".git", ".benchmarks", ".gitignore", ".venv", "__pycache__", "out", "build", "dist"}


def entries(text: str) -> list[str]:
    """The items of a changelog, each in one line."""
    matches = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [" ".join(entry.split()) for entry in matches]


def test_the_version_has_a_dated_section() -> None:
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", CHANGES, re.M)


def test_no_change_is_told_twice() -> None:
    beginnings = [entry[:45] for entry in entries(CHANGES)]

    assert len(beginnings) > 100
    assert sorted(set(beginnings)) == sorted(beginnings)


def test_the_sdist_has_everything_of_a_checkout() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    there = {path.name for path in ROOT.iterdir()} - LEFT_OUT

    missing = [
        name
        for name in there
        if not any(fnmatch(name, pattern) for pattern in (*included, "pyproject.toml", "PKG-INFO"))
        and not name.endswith("_cache")
        and not name.startswith((".hypothesis", ".weft"))
    ]

    assert not missing


def test_users_may_have_any_torch_that_works_and_tests_have_one() -> None:
    wanted = PROJECT["project"]["optional-dependencies"]["train"]
    pinned = (ROOT / "tests" / "constraints.txt").read_text()

    assert all(">=" in requirement and "==" not in requirement for requirement in wanted)
    assert re.search(r"^torch==", pinned, re.MULTILINE)
