"""Every `weft ...` that a hint, a help text or a page names can be typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.house.sources import all_modules, nodes
from tests.house.test_docs import PAGES, name_of
from tests.house.test_docs import ROOT as REPOSITORY

from weft.cli.commands.simulate.list import PartName
from weft.cli.main import ALIASES, commands

NAMED = re.compile(r"`+(weft(?: [^`]*)?)`+")
TYPED = re.compile(r"^(?:\$ )?(weft .*)$", re.MULTILINE)
ANYTHING = "\0"  # what a message fills in
PLACEHOLDER = re.compile(r"^[A-Z][A-Z0-9_@.,=-]*$|^[.…]+$|[\0<\[]")
ROOT: Any = commands()
ROOT.load_all()
ROOT_LIST, KINDS = ROOT.commands["list"], set(PartName)


def texts(path: Path) -> Iterator[str]:
    """The strings of a module; what is filled in becomes one character."""
    inside = {id(part) for n in nodes(path) if isinstance(n, ast.JoinedStr) for part in n.values}
    for node in nodes(path):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else ANYTHING
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield str(node.value)


def wrong(line: str) -> str:
    """Why this cannot be typed; empty if it can."""
    command: Any = ROOT
    value = False  # of the option before
    for word in re.split(r"\s*(?:[#|&>;\\]|\s-- ).*", line.strip())[0].split()[1:]:
        if word == "--":
            break
        if word.startswith("-"):
            option, _, given = word.partition("=")
            known = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts)}
            if option not in {*known, "--help", "-h"}:
                return f"{command.name} has no option {option}"
            value = option in known and not known[option].is_flag and not given
        elif value:
            value = False
        elif hasattr(command, "commands"):
            if PLACEHOLDER.search(word) or "|" in word:
                break
            name = ALIASES.get(word, word) if command is ROOT else word
            if name not in command.commands:
                return f"{command.name} has no command {word}"
            command = command.commands[name]
        elif command is ROOT_LIST and not PLACEHOLDER.search(word) and word not in KINDS:
            return f"list does not know {word}"
    return ""


def test_commands_that_the_code_names_exist() -> None:
    named = [
        (path.name, line)
        for path in all_modules()
        for text in texts(path)
        for line in NAMED.findall(text)
    ]

    assert [f"{name}: {line!r}: {why}" for name, line in named if (why := wrong(line))] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_the_pages_name_exist(page: Path) -> None:
    text = page.read_text()
    named = NAMED.findall(text) + TYPED.findall(text)

    assert [f"{line!r}: {why}" for line in named if (why := wrong(line))] == []


@pytest.mark.parametrize(
    "line",
    ["weft list node", "weft nodde", "weft token make", "weft jobs --al", "weft quota set --gpu 3"],
)
def test_what_cannot_be_typed_is_found(line: str) -> None:
    assert wrong(line)


MODULE = re.compile(r"python -m\s+(\.{3}\w+|(?:weft_papers|benchmarks)(?:\.\w+)*)")
RUNS = [*PAGES, *sorted((REPOSITORY / "benchmarks").rglob("*.py")), *all_modules()]


def test_every_module_of_ours_that_a_page_or_a_docstring_runs_is_there() -> None:
    named = {name: path for path in RUNS for name in MODULE.findall(path.read_text())}

    absent = {
        name: str(path)
        for name, path in named.items()
        if "NAME" not in name and (name[0] == "." or not _runs(name))
    }

    assert len(named) > 50
    assert absent == {}


def _runs(name: str) -> bool:
    spec = find_spec(name) if find_spec(name.rpartition(".")[0] or name) else None
    return spec is not None and (
        not spec.submodule_search_locations or find_spec(f"{name}.__main__") is not None
    )
