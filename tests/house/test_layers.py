"""Who may import whom: a star around the core, wired together in app alone."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.sources import SRC, modules, nodes, parsed

from weft.core.spec.registry import GROUPS

PROJECT = SRC.parents[1] / "pyproject.toml"
FOR_ALL = {"version", "frozen", "garbage", "hinted", "native", "plural"}
PARTS = {"perf", "predict", "pieces", "traces", "store", "sim", "report"}
ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "frozen": set(),
    "garbage": set(),
    "hinted": set(),
    "native": set(),
    "plural": set(),
    "typed": set(),
    "core": {"typed"},
    "wire": {"typed"},
    "stack": {"core"},
    "formulas": {"core"},
    "solve": {"core"},
    **{part: {"core"} for part in PARTS},
    **{part: {"core", "formulas"} for part in ("traces", "sim")},
    "report": {"core", "formulas", "sim"},
    "perf": {"core", "formulas", "solve"},
    "pieces": {"core", "stack", "formulas", "solve"},
    "policies": {"core", "pieces", "formulas", "solve"},
    "engines": {"core", "wire"},
    "runtime": {"core", "stack", "formulas", "wire"},
    "node": {"wire"},
    "train": {"wire", "perf"},
    "policy": {"core", "stack", "pieces"},
    "__main__": {"cli"},
    "app": {"core", "stack", "formulas", "policies", "engines", "runtime", "wire", *PARTS}
    - {"report"},
    "service": {"app", "core", "report", "runtime", "stack", "typed"},
    "cli": {"app", "core", "engines", "report", "runtime", "service", "sim", "traces", "wire"},
    "testing": {"app", "core", "stack", "perf", "predict", "sim", "pieces", "runtime"},
}
CORE_NEEDS = {"numpy", "yaml"}  # yaml only where a text of it is read
LOOKUPS = {"build", "find", "names", "read_spec"}
# Who makes parts by name although it may not import them, and why.
BY_NAME = {
    ("runtime", "policy"): "the log names the policy that decides",
    ("service", "policy"): "a request names one, and is answered before anything changes",
    ("testing", "policy"): "the scenarios of a live service are run under named policies",
}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that is imported, by any spelling."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            yield from _from(path, node)
        elif isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno


def _from(path: Path, node: ast.ImportFrom) -> Iterator[tuple[str, int]]:
    module = node.module or ""
    if node.level:  # relative to where the file is
        here = ("weft", *path.relative_to(SRC).parent.parts)
        above = here[: len(here) - node.level + 1]
        module = ".".join([*above, *([module] if module else [])])
    if module != "weft":
        yield module, node.lineno
        return
    for name in node.names:  # `from weft import x`: a package, or what `weft` hands out
        inside = (SRC / name.name).is_dir() or (SRC / f"{name.name}.py").is_file()
        if inside or name.name != "__version__":
            yield f"weft.{name.name if inside else 'app'}", node.lineno


def handed_on(path: Path) -> Iterator[tuple[str, int, str]]:
    """(name, line, package that defines it) for names that come by way of another module."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft."):
            for name in node.names:
                defined = _defined_in(str(node.module), name.name)
                if defined != node.module:
                    yield name.name, node.lineno, defined.split(".")[1]


def _defined_in(module: str, name: str) -> str:
    """The module that a name is from; the one asked where it is handed out on purpose."""
    source = _source(module)
    if source is None:
        return module
    tree = parsed(source)
    if any(name in _listed(node) for node in tree.body):
        return module
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and _of_another(node, module):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _defined_in(str(node.module), alias.name)
    return module


def _of_another(node: ast.ImportFrom, module: str) -> bool:
    return (node.module or "").startswith("weft.") and node.module != module


def _source(module: str) -> Path | None:
    base = SRC.joinpath(*module.split(".")[1:])
    files = [p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()]
    return files[0] if files else None


def _listed(node: ast.stmt) -> list[str]:
    """The names of `__all__`."""
    if isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
    ):
        return list(ast.literal_eval(node.value))
    return []


def built(path: Path) -> Iterator[tuple[str, int]]:
    """Kinds of parts that are made or looked up by name: `build("perf", ...)`."""
    for node in nodes(path):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        first = node.args[0]
        if called in LOOKUPS and isinstance(first, ast.Constant) and first.value in GROUPS:
            yield str(first.value), node.lineno


@cache
def providers() -> dict[str, set[str]]:
    """Kind to the packages that our own parts of it are in."""
    points = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
    return {
        kind: {where.split(".")[1] for where in points.get(group, {}).values()}
        for kind, group in GROUPS.items()
    }


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def allowed_in(room: str) -> set[str]:
    """The rooms it may import from; the package's own `__init__` may from all."""
    return (set(ALLOWED) if room == "__init__" else ALLOWED[room]) | {room, *FOR_ALL}


def test_a_module_imports_only_the_layers_below_it() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in modules()
        for name, line in imports(path)
        if name.startswith("weft.") and name.split(".")[1] not in allowed_in(room_of(path))
    ]

    assert not wrong


def test_what_a_module_takes_from_another_is_that_ones_own() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} takes {name} of {owner} from elsewhere"
        for path in modules()
        for name, line, owner in handed_on(path)
        if owner not in allowed_in(room_of(path))
    ]

    assert not wrong


def test_parts_are_made_by_name_only_by_who_may_import_them() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line} makes a {kind}"
        for path in modules()
        for kind, line in built(path)
        if (room_of(path), kind) not in BY_NAME
        and not providers()[kind] <= allowed_in(room_of(path))
    ]

    assert not wrong


def test_every_exception_is_still_needed() -> None:
    there = {
        (path.relative_to(SRC).parts[0], kind) for path in modules() for kind, _ in built(path)
    }

    assert set(BY_NAME) <= there


def test_every_spelling_of_an_import_is_seen() -> None:
    path = SRC / "perf" / "none.py"  # only its place counts
    code = (
        "from weft import app, simulate, __version__\nfrom .. import sim\nfrom .linear import x\n"
    )
    names = [
        name
        for node in ast.parse(code).body
        if isinstance(node, ast.ImportFrom)
        for name, _ in _from(path, node)
    ]

    assert names == ["weft.app", "weft.app", "weft.sim", "weft.perf.linear"]


def test_policies_and_pieces_never_import_the_truth() -> None:
    looked = [p for p in modules() if p.relative_to(SRC).parts[0] in ("policies", "pieces")]

    wrong = [
        p.name for p in looked for name, _ in imports(p) if name.startswith("weft.core.model.trace")
    ]

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


def test_the_core_needs_next_to_nothing_besides_the_standard_library() -> None:
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


# ---- the figure of these rules: WEFT_UPDATE_FIGURE=1 writes it

DESIGN = SRC.parents[1] / "docs" / "explanation" / "design.md"
BEGIN, END = "<!-- rooms: made from tests/house/test_layers.py -->", "<!-- end of rooms -->"


def used_by(room: str) -> set[str]:
    """The rooms that it imports, or makes parts of by name."""
    mine = [path for path in modules() if room_of(path) == room]
    by_import = {
        name.split(".")[1] for p in mine for name, _ in imports(p) if name.startswith("weft.")
    }
    by_name = {
        provider
        for p in mine
        for kind, _ in built(p)
        if (room, kind) not in BY_NAME
        for provider in providers()[kind]
    }
    return (by_import | by_name) & set(ALLOWED)


def arrows() -> dict[str, set[str]]:
    """What is drawn: folders alone, `version` is for everybody."""
    rooms = {room for room in ALLOWED if (SRC / room).is_dir()}
    return {room: (ALLOWED[room] - {room}) & rooms for room in ALLOWED if room in rooms}


def reaches(graph: dict[str, set[str]], start: str) -> set[str]:
    there: set[str] = set()
    ways = list(graph[start])
    while ways:
        room = ways.pop()
        if room not in there:
            there.add(room)
            ways += graph[room]
    return there


def figure() -> str:
    """The rooms as a figure without arrows that others imply, and as a table with all."""
    graph = arrows()
    lines = ["```mermaid", "flowchart TB"]
    for room in sorted(graph):
        below = set().union(*(reaches(graph, other) for other in graph[room]))
        lines += [f"    {room} --> {other}" for other in sorted(graph[room] - below)]
    lines += ["```", "", "| room | what it is | imports |", "|---|---|---|"]
    for room in sorted(graph, key=lambda room: (-len(reaches(graph, room)), room)):
        purpose = (ast.get_docstring(parsed(SRC / room / "__init__.py")) or "").splitlines()[0]
        listed = ", ".join(f"`{other}`" for other in sorted(graph[room]))
        lines.append(f"| `{room}` | {purpose} | {listed} |")
    return "\n".join(lines)


def test_every_arrow_that_is_allowed_is_used() -> None:
    unused = {room: left for room in ALLOWED if (left := ALLOWED[room] - {room} - used_by(room))}

    assert not unused


def test_the_figure_of_the_house_is_what_is_allowed() -> None:
    text = DESIGN.read_text()
    drawn = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", text, re.DOTALL)
    assert drawn, f"{DESIGN.name} has no place for the figure"
    if os.environ.get("WEFT_UPDATE_FIGURE"):
        DESIGN.write_text(text[: drawn.start(1)] + figure() + text[drawn.end(1) :])
        return

    assert drawn[1] == figure(), "WEFT_UPDATE_FIGURE=1 pytest tests/house/test_layers.py"
