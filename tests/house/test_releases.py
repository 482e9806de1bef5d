"""What is released: a dated changelog without doubles."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from weft.version import __version__

ROOT = Path(__file__).resolve().parents[2]
CHANGES = (ROOT / "CHANGELOG.md").read_text()
TRAIN = tomllib.loads((ROOT / "packages" / "weft-train" / "pyproject.toml").read_text())


def entries(text: str) -> list[str]:
    """The items of a changelog, each in one line."""
    matches = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [" ".join(entry.split()) for entry in matches]


def test_the_version_has_a_dated_section() -> None:
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", CHANGES, re.M)


def test_trainings_have_the_version_of_the_scheduler() -> None:
    source = ROOT / "packages" / "weft-train" / "src" / "weft_train" / "version.py"

    assert f'__version__ = "{__version__}"' in source.read_text()


def test_every_distribution_has_the_licence() -> None:
    projects = sorted((ROOT / "packages").glob("*/pyproject.toml"))
    texts = {(path.parent / "LICENSE").read_text() for path in projects}

    assert len(projects) >= 2
    assert texts == {(ROOT / "LICENSE").read_text()}, "a file: sdists keep links to files as links"


def test_no_change_is_told_twice() -> None:
    beginnings = [entry[:45] for entry in entries(CHANGES)]

    assert len(beginnings) > 50
    assert sorted(set(beginnings)) == sorted(beginnings)


def test_the_changelog_stays_readable() -> None:
    """A section has an entry for each thing that a user notices, not one for each commit."""
    sections = re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]

    assert {s.partition("\n")[0]: n for s in sections if (n := s.count("\n")) > 80} == {}


def test_users_may_have_any_torch_that_works_and_tests_have_one() -> None:
    wanted = TRAIN["project"]["dependencies"]
    pinned = (ROOT / "tests" / "constraints.txt").read_text()

    assert [requirement.partition(">=")[0] for requirement in wanted] == ["torch"]
    assert re.search(r"^torch==", pinned, re.MULTILINE)
