"""A reader should be able to hold any file in their head."""

from __future__ import annotations

import re
from collections import Counter

from tests.house.sources import all_modules, list_tests

MOST_FILES = 17  # a folder with more has rooms that it does not show
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py"}


def test_no_module_is_longer_than_500_lines() -> None:
    modules = all_modules()

    assert [path for path in modules if len(path.read_text().splitlines()) > 500] == []
    assert [path for path in modules if path.name in FORBIDDEN_NAMES] == []


def test_no_folder_is_a_flat_room() -> None:
    folders = {path.parent for path in all_modules()}
    crowded = {
        folder: count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES
    }

    assert not crowded, "give its subjects rooms of their own"
    assert all((folder / "__init__.py").read_text().startswith('"""') for folder in folders)


def test_no_two_test_files_have_the_same_name() -> None:
    names = [path.name for path in list_tests()]

    twice = sorted({name for name in names if names.count(name) > 1})

    assert not twice, "pytest imports test files by their names"


def test_no_two_tests_have_the_same_name() -> None:
    """Pages name tests by their names alone, such as the table of formulas."""
    names = [name for path in list_tests() for name in TEST.findall(path.read_text())]

    twice = sorted(name for name, times in Counter(names).items() if times > 1)

    assert not twice, "say in the name of each what it is about"
