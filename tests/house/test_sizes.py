"""A reader should be able to hold any file in their head."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "weft"
MOST_FILES = 17  # a folder with more has rooms that it does not show
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py"}


def test_no_module_is_longer_than_400_lines() -> None:
    modules = sorted(SRC.rglob("*.py"))

    assert [path for path in modules if len(path.read_text().splitlines()) > 400] == []
    assert [path for path in modules if path.name in FORBIDDEN_NAMES] == []


def test_no_folder_is_a_flat_room() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}
    crowded = {
        folder.relative_to(SRC).as_posix(): count
        for folder in folders
        if (count := len(list(folder.glob("*.py")))) > MOST_FILES
    }

    assert not crowded, "give its subjects rooms of their own"
    assert all((folder / "__init__.py").read_text().startswith('"""') for folder in folders)


def test_no_two_test_files_have_the_same_name() -> None:
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]

    twice = sorted({name for name in names if names.count(name) > 1})

    assert not twice, "pytest imports test files by their names"


def test_no_two_tests_have_the_same_name() -> None:
    """Pages name tests by their names alone, such as the table of formulas."""
    names = [
        node.name
        for path in Path(__file__).resolve().parents[1].rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]

    twice = sorted(name for name, times in Counter(names).items() if times > 1)

    assert not twice, "say in the name of each what it is about"
