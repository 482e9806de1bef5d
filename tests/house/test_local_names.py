"""Locals and parameters are named after what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.house.scripts import names
from tests.house.sources import SRC

ROOT = SRC.parents[3]
FOLDERS = ("packages", "tests", "benchmarks", "docs", "examples")
VAGUE = {"one", "found", "told", "said"}
# Where such a name may be given a value; most files have none and need no parsing.
STORED = re.compile(rf"(?<![\w.\"'`])({'|'.join(sorted(VAGUE))})\s*(=|:|,|\)|\]| in |$)", re.M)


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Variables, parameters and functions whose name says nothing; fields of classes may."""
    if not STORED.search(source):
        return
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


def vague_in_script(script: str) -> Iterator[tuple[int, str]]:
    for at, name in names(script):
        if name in VAGUE:
            yield script.count("\n", 0, at) + 1, name


def test_variables_of_scripts_say_what_they_hold() -> None:
    scripts = [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.js"))
        if "vendor" not in path.parts
    ]

    vague = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in scripts
        for line, name in vague_in_script(path.read_text())
    ]

    assert len(scripts) > 20
    assert not vague, "name them after what they hold: job, reply, reasons, matches"


PLANTED = (
    "const found = read();",
    "jobs.map((one) => one.id)",
    "let all = [...told];",
    "x = html`<b>one ${jobs.map((one) => `${one.id}`)} found</b>`",
    "const { ranks: said } = await get();",
    'const a = b / c; const one = /"/.test(a);',
)
HARMLESS = (
    "reply.found;",
    'say("one");',
    "// no one is told",
    "/* found\n one */",
    "x = `one row ${count} found`",
    "y = `one ${`told ${name}`} said`",
    r"text.split(/one'/)",
    "const someone = 1;",
)
IN_PYTHON = (
    "found = read()",
    "jobs = [one for one in queue]",
    "def f(told): ...",
    "lambda said: said",
    "while (found := read()): ...",
)


@pytest.mark.parametrize("script", PLANTED)
def test_a_vague_name_of_a_script_is_found(script: str) -> None:
    assert list(vague_in_script(script))


@pytest.mark.parametrize("script", HARMLESS)
def test_texts_and_fields_of_scripts_may_have_the_words(script: str) -> None:
    assert not list(vague_in_script(script))


@pytest.mark.parametrize("source", IN_PYTHON)
def test_a_vague_name_is_found(source: str) -> None:
    assert list(vague_names(source))


def test_texts_and_fields_may_have_the_words() -> None:
    assert not list(vague_names('class Reply:\n    said: str = "found one"'))
