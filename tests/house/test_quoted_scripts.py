"""Scripts that stand in strings, such as those of jobs in tests, import names that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import ROOT, parsed

FOLDERS = ("packages", "tests", "benchmarks", "docs", "examples")
QUOTED = re.compile(r"^[ ]*from (weft(?:_train|_papers)?[\w.]*) import ([\w, ]+)$", re.MULTILINE)
# A string of several lines that is no docstring, or one that begins like a script.
HOLDS_SCRIPTS = re.compile(r'[=(,]\s*f?r?"""|"from weft')
PLANTED = ("test_layers.py", "test_open_imports.py", "test_quoted_scripts.py")
BASE = ROOT / "packages" / "weft" / "src" / "weft" / "base"


def find_module(name: str) -> Path | None:
    """The file of a module of ours; `weft.train` is `weft_train`."""
    package, *parts = re.sub(r"^weft\.train\b", "weft_train", name).split(".")
    folder = ROOT / "packages" / package.replace("_", "-") / "src" / package
    if parts[:1] == ["base"]:
        folder, parts = BASE, parts[1:]
    path = folder.joinpath(*parts)
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def is_there(module: str, name: str) -> bool:
    """True if a module has such a name, or a module of that name inside it."""
    path = find_module(module)
    if path is None:
        return False
    made = ast.FunctionDef | ast.ClassDef
    names = {node.name for node in parsed(path).body if isinstance(node, made)}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    opens = any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        for node in parsed(path).body
    )
    return name in names or opens or find_module(f"{module}.{name}") is not None


def missing_names(source: str) -> Iterator[str]:
    """What scripts in the strings of a file import and is not there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, names in QUOTED.findall(node.value):
                for name in re.split(r"[,\s]+", names.partition(" as ")[0].strip(", ")):
                    if not is_there(module, name):
                        yield f"{module}.{name}"


def test_a_name_that_is_gone_is_found() -> None:
    script = "from weft.base.client import {}\\n"

    assert [*missing_names(f'X = "{script.format("Gone")}"')] == ["weft.base.client.Gone"]
    assert not [*missing_names(f'X = "{script.format("AgentConnection")}"')]


def test_scripts_in_strings_import_what_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name not in PLANTED and HOLDS_SCRIPTS.search(text := path.read_text())
        for name in missing_names(text)
    ]

    assert not wrong
