"""Digests of what a result follows from: when one changes, its simulations run again.

A policy's digest is of its modules and all pieces, solvers and predictors that they import, as
syntax trees, so that comments and wording count for nothing, nor does the version of Python. The
simulator itself is not in it: it is known by the results of two simple policies on the same jobs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from benchmarks.league.matches import Entry
from weft.core.spec.registry import find, read_spec

DECIDES = ("weft.policies.", "weft.pieces.", "weft.solve.", "weft.predict.", "weft_papers.")
OWN_FILE = ".py:"


def digest(*texts: str) -> str:
    """A short digest of some texts."""
    return sha256("\0".join(texts).encode()).hexdigest()[:12]


def of_entry(entry: Entry) -> str:
    """Of a policy's parameters, its predictor and all code that decides for it."""
    if OWN_FILE in entry.policy:
        own = Path(entry.policy.split(OWN_FILE)[0] + ".py").read_text()
        return digest(*entry, dump(own))
    parts = [find("policy", read_spec("policy", entry.policy).name)]
    if entry.predictor:
        parts.append(find("predictor", entry.predictor))
    modules = sorted(set().union(*(imported(part.__module__) for part in parts)))
    return digest(*entry, *(code_of(name) for name in modules))


def imported(module: str) -> frozenset[str]:
    """A module and all that decide of those that it imports, and they in turn."""
    seen: set[str] = set()
    left = [module]
    while left:
        if (name := left.pop()) not in seen and file_of(name) is not None:
            seen.add(name)
            left += [other for other in named_in(name) if other.startswith(DECIDES)]
    return frozenset(seen)


@cache
def file_of(module: str) -> Path | None:
    """The file of a module; None for a name within one."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


@cache
def text_of(module: str) -> str:
    """The source of a module."""
    file = file_of(module)
    assert file is not None, module
    return file.read_text()


@cache
def code_of(module: str) -> str:
    """The code of a module without comments and docstrings."""
    return dump(text_of(module))


def dump(text: str) -> str:
    """The syntax tree of a text; 3.12 writes a field of functions that 3.11 does not know."""
    return ast.dump(strip(ast.parse(text))).replace(", type_params=[]", "")


def named_in(module: str) -> Iterator[str]:
    """Modules that it may import, also inside functions."""
    for node in ast.walk(ast.parse(text_of(module))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def strip(tree: ast.Module) -> ast.Module:
    """The same code without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return tree
