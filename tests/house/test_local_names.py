"""Locals and parameters are named after what they hold."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.house.sources import SRC

ROOT = SRC.parents[1]
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples")
VAGUE = {"one", "found", "told", "said"}


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Variables, parameters and functions whose name says nothing; fields of classes may."""
    tree = ast.parse(source)
    fields = {
        id(line.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name in VAGUE and id(node) not in fields:
                yield node.lineno, name
            case ast.arg(arg=name) if name in VAGUE:
                yield node.lineno, name


@pytest.mark.parametrize("folder", FOLDERS)
def test_locals_say_what_they_hold(folder: str) -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in vague_names(path.read_text())
    ]

    assert not vague, "name them after what they hold: job, reply, reasons, matches"


@pytest.mark.parametrize(
    "source",
    [
        "found = read()",
        "jobs = [one for one in queue]",
        "def f(told): ...",
        "lambda said: said",
        "while (found := read()): ...",
    ],
)
def test_a_vague_name_is_found(source: str) -> None:
    assert list(vague_names(source))


def test_texts_and_fields_may_have_the_words() -> None:
    assert not list(vague_names('class Reply:\n    said: str = "found one"'))
