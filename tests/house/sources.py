"""Our own modules as trees of code, read once for all rules."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "packages" / "weft" / "src" / "weft"
PAPERS = ROOT / "packages" / "weft-papers" / "src" / "weft_papers"
TRAIN = ROOT / "packages" / "weft-train" / "src" / "weft_train"


@cache
def modules() -> tuple[Path, ...]:
    """Every file of the package `weft`."""
    return tuple(sorted(SRC.rglob("*.py")))


@cache
def paper_modules() -> tuple[Path, ...]:
    """Every file of `weft_papers` but tests and comparisons with the authors' numbers."""
    return tuple(path for path in sorted(PAPERS.rglob("*.py")) if not is_aside(path))


@cache
def train_modules() -> tuple[Path, ...]:
    """Every file of `weft_train` but the folder that it shares with `weft`."""
    own = (
        path for path in sorted(TRAIN.rglob("*.py")) if path.relative_to(TRAIN).parts[0] != "base"
    )
    return tuple(own)


def is_aside(path: Path) -> bool:
    """Tests and comparisons beside the code, which reach for more of weft than plug-ins may."""
    parts = path.relative_to(PAPERS).parts
    return any(part == "tests" or part.startswith("published") for part in parts)


def all_modules() -> tuple[Path, ...]:
    """Every file of all distributions that is no test."""
    return modules() + paper_modules() + train_modules()


def name_file(path: Path) -> str:
    """A module of weft by its path below the package, any other with its package."""
    if path.is_relative_to(SRC):
        return path.relative_to(SRC).as_posix()
    return path.relative_to(
        next(base for base in (PAPERS, TRAIN) if path.is_relative_to(base)).parent
    ).as_posix()


def name_module(path: Path) -> str:
    """The dotted name of a module."""
    base = next(base for base in (SRC, PAPERS, TRAIN) if path.is_relative_to(base))
    parts = path.relative_to(base.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def list_tests() -> tuple[Path, ...]:
    """Every file with tests, wherever it is."""
    folders = (ROOT / "tests", ROOT / "packages")
    return tuple(sorted(path for folder in folders for path in folder.rglob("test_*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    """What it says."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All that is in it, in no order."""
    return tuple(ast.walk(parsed(path)))
