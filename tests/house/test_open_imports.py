"""Imports say where a name is from: nobody hands names on, and no modules import in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.sources import all_modules, name_file, name_module, nodes, parsed

# What users import: the few modules whose purpose is to gather names.
DOORS = {"__init__.py", "policy.py", "testing/__init__.py", "train.py", "weft_train/__init__.py"}


MODULES = {name_module(path): path for path in all_modules()}


def handed_on(tree: ast.Module) -> Iterator[str]:
    """Names that a module imports from ours only for others to import them from it."""
    listed: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            listed |= set(ast.literal_eval(node.value))
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft"):
            for name in node.names:
                if name.asname == name.name or (name.asname or name.name) in listed:
                    yield name.name


def imported(path: Path) -> set[str]:
    """Our modules that a module imports anywhere, those that only types need included."""
    names: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{name.name}" for name in node.names} & MODULES.keys()
            names |= inside or {node.module}
    return (names & MODULES.keys()) - {name_module(path)}


def find_circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of modules that reach each other (Tarjan's strongly connected components)."""
    low: dict[str, int] = {}
    stack: list[str] = []
    done: set[str] = set()
    circles: list[list[str]] = []

    def visit(module: str) -> int:
        low[module] = mine = len(low)
        stack.append(module)
        for other in sorted(arrows[module]):
            if other not in low:
                low[module] = min(low[module], visit(other))
            elif other not in done:
                low[module] = min(low[module], low[other])
        if low[module] == mine:
            at = stack.index(module)
            circle = stack[at:]
            del stack[at:]
            done.update(circle)
            if len(circle) > 1:
                circles.append(sorted(circle))
        return low[module]

    for module in sorted(arrows):
        if module not in low:
            visit(module)
    return circles


def test_no_module_hands_on_the_names_of_another() -> None:
    wrong = {
        name_file(path): names
        for path in all_modules()
        if name_file(path) not in DOORS and (names := sorted(handed_on(parsed(path))))
    }

    assert not wrong, "import each name from the module that defines it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_circles({name: imported(path) for name, path in MODULES.items()}) == []


def test_names_that_are_handed_on_are_found() -> None:
    tree = ast.parse(
        "from weft.a import X, Y, Z as Z\nfrom weft.b import W\n__all__ = ['X', 'own']\n"
    )

    assert list(handed_on(tree)) == ["X", "Z"]


def test_circles_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}

    assert find_circles(arrows) == [["a", "b", "c"]]
