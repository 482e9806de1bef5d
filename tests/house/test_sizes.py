"""A reader should be able to hold any file in their head."""

from __future__ import annotations

from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "weft"
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py"}


def test_no_module_is_longer_than_400_lines() -> None:
    modules = sorted(SRC.rglob("*.py"))

    assert [path for path in modules if len(path.read_text().splitlines()) > 400] == []
    assert [path for path in modules if path.name in FORBIDDEN_NAMES] == []


def test_no_two_test_files_have_the_same_name() -> None:
    names = [path.name for path in Path(__file__).resolve().parents[1].rglob("test_*.py")]

    twice = sorted({name for name in names if names.count(name) > 1})

    assert not twice, "pytest imports test files by their names"
