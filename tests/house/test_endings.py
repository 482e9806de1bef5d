"""A loop that goes on after errors ends when its task is cancelled, and processes end once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import all_modules, name_file, nodes

ENDS = "end_if_asked"
HARMLESS = {"TimeoutError", "StopAsyncIteration", "asyncio.CancelledError"}
KILLS = {"kill", "terminate", "send_signal"}


def loops(path: Path) -> Iterator[ast.While]:
    """Loops of coroutines that go on after an error of what they call."""
    for node in nodes(path):
        if isinstance(node, ast.AsyncFunctionDef):
            yield from (
                each for each in _own(node) if isinstance(each, ast.While) and goes_on(each)
            )


def _own(outer: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function without the functions in it."""
    for child in ast.iter_child_nodes(outer):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
            yield from _own(child)


def goes_on(loop: ast.While) -> bool:
    handlers = [each for each in _own(loop) if isinstance(each, ast.ExceptHandler)]
    return any(_caught(each) - HARMLESS and not _leaves(each) for each in handlers)


def _caught(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind) if kind is not None else "BaseException" for kind in kinds}


def _leaves(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], (ast.Return, ast.Raise, ast.Break)) and not any(
        isinstance(each, ast.Continue) for each in ast.walk(handler)
    )


def test_a_loop_that_goes_on_after_errors_asks_whether_it_is_to_end() -> None:
    firsts = {
        f"{name_file(path)}:{loop.lineno}": ast.unparse(loop.body[0])
        for path in all_modules()
        for loop in loops(path)
    }

    assert len(firsts) >= 8
    assert {at: first for at, first in firsts.items() if first != f"{ENDS}()"} == {}


def test_processes_of_coroutines_are_ended_in_one_place() -> None:
    """Killing one that has ended raises; `end_process` has that in mind."""
    wrong = [
        f"{name_file(path)}:{node.lineno}"
        for path in all_modules()
        if "create_subprocess_" in path.read_text()
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in KILLS
    ]

    assert wrong == []
