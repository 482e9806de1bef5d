"""A reader should be able to hold any file in their head."""

from __future__ import annotations

from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "weft"
FORBIDDEN_NAMES = {"utils.py", "helpers.py", "common.py", "manager.py"}


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_no_module_is_longer_than_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    assert path.name not in FORBIDDEN_NAMES
