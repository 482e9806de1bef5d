"""Declare, do not sniff: nothing asks an object what attributes it has to decide what to do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import all_modules, modules, name_file, nodes, paper_modules

SNIFFS = {"getattr", "hasattr"}
# Modules that may, and why. A module that no longer does is taken off the list.
ALLOWED = {
    "__init__.py": "loads what it names on first use",
    "base/lines.py": "writes the fields of any message",
    "app/serve/private_file.py": "goes through the names of its own fields",
    "cli/job_files/job_file.py": "errors of the system and of PyYAML differ in their fields",
    "cli/lazy.py": "loads a command by its name in the table",
    "core/codec/plain_values.py": "writes the fields of any dataclass",
    "core/codec/yaml_text.py": "errors of PyYAML differ in their fields",
    "core/events/report.py": "goes through the names of its own fields",
    "node/measuring/outside.py": "calls functions of a C library by name",
    "node/watcher/_weft_watch/bars.py": "reads objects of other libraries, of any version",
    "node/watcher/_weft_watch/__init__.py": "names the code of its own functions anew",
    "node/watcher/_weft_watch/guard.py": "reads objects of other libraries, of any version",
    "node/watcher/_weft_watch/frameworks.py": "reads objects of other libraries, of any version",
    "node/watcher/_weft_watch/values.py": "reads objects of other libraries, of any version",
    "node/watcher/_weft_watch/imports.py": "finders of other libraries differ in their methods",
    "run_terms.py": "goes through the names of its own fields",
    "weft_papers/astraea/authors.py": "goes through the names of its own fields",
    "weft_papers/gavel/problem.py": "goes through the names of its own columns",
    "service/responses/json_values.py": "writes the fields of any dataclass",
    "service/routes/people/accounting.py": "writes the fields of a dataclass as a row",
    "testing/check.py": "compares the fields of any two dataclasses",
    "traces/options.py": "goes through the names of its own fields",
}


def sniffs(path: Path) -> Iterator[int]:
    for node in nodes(path) if any(word in path.read_text() for word in SNIFFS) else ():
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in SNIFFS:
            yield called.lineno


def test_nothing_decides_by_the_attributes_that_an_object_happens_to_have() -> None:
    lines_by_path = {
        name_file(path): lines
        for path in modules() + paper_modules()  # trainings meet objects of other frameworks
        if (lines := list(sniffs(path)))
    }

    wrong = {path: lines for path, lines in lines_by_path.items() if path not in ALLOWED}
    left_over = set(ALLOWED) - set(lines_by_path)
    assert not wrong, "declare it: in About, Needs, the engine, the store or the format"
    assert not left_over


def test_nothing_dispatches_on_the_name_of_a_class() -> None:
    wrong = [
        f"{name_file(path)}:{node.lineno}"
        for path in all_modules()
        if "__name__" in path.read_text()
        for node in nodes(path)
        if isinstance(node, ast.Compare)
        and any(
            isinstance(side, ast.Attribute) and side.attr == "__name__"
            for side in (node.left, *node.comparators)
        )
    ]

    assert not wrong
