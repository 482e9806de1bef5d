"""Every option of every engine is tried, or its page says that it was not.

The options are the fields of the engines themselves; the tests are read as trees of code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from docs.engines_page import UNSEEN
from tests.house.sources import ROOT

from weft.core.spec.parameters import field_names, parameters
from weft.core.spec.registry import find, names

ENGINES = names("engine")
CLUSTERS = ("tests/engines", "tests/clusters")
FOLDERS = ("tests", "packages/weft/tests")
THERE_ANYWAY = ("local", "processes", "simulated")  # every test runs the real thing


@cache
def read(folder: str) -> tuple[tuple[str, ...], tuple[ast.Call, ...]]:
    """All texts that name an option of some engine, and all calls by name."""
    texts: list[str] = []
    calls: list[ast.Call] = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                calls.append(node)
            elif isinstance(node, (ast.Constant, ast.JoinedStr)) and "=" in _text(node):
                texts.append(_text(node))
    return tuple(texts), tuple(calls)


def used(engine: str, folders: tuple[str, ...]) -> set[str]:
    """Options that tests give to an engine: `option`, and `option=value` where it is written so."""
    part, given = find("engine", engine), set()
    makers = {part.__name__, *HELPERS.get(engine, ())}
    for texts, calls in map(read, folders):
        for text in texts:
            given |= set(_in_text(engine, text))
        for call in calls:
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in makers or (name == "PartSpec" and _text(call.args[0]) == engine):
                given |= set(_in_call(call))
    named = {field: option for option, field in field_names(part).items()}
    return {re.sub(r"^\w+", lambda word: named.get(word[0], word[0]), text) for text in given}


def _in_text(engine: str, text: str) -> Iterator[str]:
    for written in re.findall(rf"(?<![\w.-]){engine}:(\S+)", text):
        for option, value in re.findall(r"(?:^|,)(\w+)=([^,]*)", written):
            yield from (option, f"{option}={value}")


def _in_call(node: ast.Call) -> Iterator[str]:
    for keyword in node.keywords:
        if keyword.arg is not None:
            yield from (keyword.arg, f"{keyword.arg}={_text(keyword.value)}")
    for inner in ast.walk(node):
        if isinstance(inner, ast.Dict):
            yield from (_text(key) for key in inner.keys if key is not None)


def _text(node: ast.AST) -> str:
    """The text of a string, with `?` for what is filled in; empty for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "?" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# Functions of tests that hand their keywords on to an engine.
HELPERS = {"kubernetes": ("engine_of_pods", "kubernetes_options"), "slurm": ("engine",)}


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in THERE_ANYWAY])
def test_every_option_is_used_by_a_test(engine: str) -> None:
    never = set(parameters(find("engine", engine))) - used(engine, FOLDERS)

    assert never - UNSEEN.get(engine, {}).keys() == set()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_page_names_the_options_that_nothing_real_has_seen(engine: str) -> None:
    folders = FOLDERS if engine in THERE_ANYWAY else CLUSTERS
    seen, unseen = used(engine, folders), UNSEEN.get(engine, {})

    never = set(parameters(find("engine", engine))) - seen
    assert never == {option for option in unseen if "=" not in option}
    assert seen & unseen.keys() == set()
    assert all(unseen.values())
