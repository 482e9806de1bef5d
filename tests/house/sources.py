"""Our own modules as trees of code, read once for all rules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "weft"


@cache
def modules() -> tuple[Path, ...]:
    """Every file of the package."""
    return tuple(sorted(SRC.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    """What it says."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All that is in it, in no order."""
    return tuple(ast.walk(parsed(path)))
