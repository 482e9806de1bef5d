"""A loaded machine is slow, and not wrong: tests compare times with times of the same run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.sources import list_tests, parsed

LIMIT = 4
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


def reads_clock(node: ast.AST, timed: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in timed
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in CLOCKS and not node.args


def durations(scope: ast.AST) -> set[str]:
    """Names that hold a difference of clock readings."""
    readings: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if reads_clock(node.value, set()):
                readings.add(name)
            elif is_duration(node.value, readings):
                names.add(name)
    return names


def is_duration(node: ast.AST, readings: set[str]) -> bool:
    difference = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
    return difference and reads_clock(node.left, readings)  # type: ignore[attr-defined]


def absolute(tree: ast.AST) -> Iterator[int]:
    """Lines of asserts that hold a duration against a number."""
    scopes = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for scope in scopes:
        took = durations(scope)
        for node in ast.walk(scope):
            test = node.test if isinstance(node, ast.Assert) else None
            if not isinstance(test, ast.Compare):
                continue
            sides = [test.left, *test.comparators]
            timed = any(
                is_duration(side, set()) or (isinstance(side, ast.Name) and side.id in took)
                for side in sides
            )
            if timed and any(isinstance(side, ast.Constant) for side in sides):
                yield test.lineno


def test_the_rule_sees_what_it_forbids() -> None:
    head = "def test():\n    began = time.monotonic()\n    duration = perf_counter() - began\n"

    def is_wrong(comparison: str) -> bool:
        return [*absolute(ast.parse(f"{head}    assert {comparison}"))] == [4]

    assert is_wrong(f"time.monotonic() - began < {LIMIT}")
    assert is_wrong(f"{LIMIT} > duration")
    assert not is_wrong("time.monotonic() < until")
    assert not is_wrong("duration < 3 * other")


def test_no_test_asserts_an_absolute_time() -> None:
    wrong = [
        f"{path.name}:{line}"
        for path in list_tests()
        if any(f"{clock}()" in path.read_text() for clock in CLOCKS)
        for line in absolute(parsed(path))
    ]

    assert not wrong
