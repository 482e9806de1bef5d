"""Who may import whom: a star around the core, wired together in app alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src" / "weft"
PARTS = {"perf", "predict", "pieces", "traces", "store", "sim", "report"}
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "wire": set(),
    "formulas": {"core"},
    "solve": {"core"},
    **{part: {"core"} for part in PARTS},
    **{part: {"core", "formulas"} for part in ("traces", "sim", "report")},
    "perf": {"core", "formulas", "solve"},
    "pieces": {"core", "formulas", "solve"},
    "policies": {"core", "pieces", "formulas", "solve"},
    "engines": {"core", "wire"},
    "runtime": {"core"},
    "node": {"wire"},
    "train": {"wire", "perf"},
    "policy": {"core", "pieces"},
    "__main__": {"cli"},
    "app": {"core", "policies", "engines", "runtime", *PARTS},
    "service": {"app", "core", "report"},
    "cli": {"app", "core", "report", "service"},
    "testing": {"app", "core", "report", "perf", "predict", "sim"},
}
CORE_NEEDS = {"numpy"}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_imports_only_the_layers_below_it(path: Path) -> None:
    package = path.relative_to(SRC).parts[0]
    if package == "__init__.py":
        return
    package = package.removesuffix(".py")
    allowed = ALLOWED[package] | {package}

    wrong = [
        f"{path.name}:{line} imports {name}"
        for name, line in imports(path)
        if name.startswith("weft.") and name.split(".")[1] not in allowed
    ]

    assert not wrong


def test_policies_and_pieces_never_import_the_truth() -> None:
    looked = [p for p in modules() if p.relative_to(SRC).parts[0] in ("policies", "pieces")]

    wrong = [p.name for p in looked for name, _ in imports(p) if name.startswith("weft.core.trace")]

    assert looked
    assert not wrong


def test_policies_and_pieces_touch_no_clock_no_files_and_no_global_randomness() -> None:
    forbidden = {"time", "datetime", "random", "os", "pathlib", "io", "socket", "subprocess"}
    looked = [p for p in modules() if p.relative_to(SRC).parts[0] in ("policies", "pieces")]

    wrong = [
        f"{p.name} imports {name}"
        for p in looked
        for name, _ in imports(p)
        if name.split(".")[0] in forbidden
    ]

    assert not wrong


def test_the_core_needs_only_numpy_and_the_standard_library() -> None:
    import sys

    wrong = [
        f"{p.name} imports {name}"
        for p in modules()
        if p.relative_to(SRC).parts[0] == "core"
        for name, _ in imports(p)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names
        and top not in CORE_NEEDS | {"weft"}
    ]

    assert not wrong
