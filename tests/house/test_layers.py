"""Who may import whom: a star around the core, wired together in app alone."""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from benchmarks.house import PICTURE
from benchmarks.house_picture import draw, floors, reach, read_rooms, reduce
from tests.house.sources import SRC, modules, name_file, nodes, paper_modules, parsed

from weft.core.spec.registry import GROUPS

PROJECT = SRC.parents[1] / "pyproject.toml"
FOR_ALL = {"version", "base", "frozen", "native", "plural", "run_terms"}
PARTS = {"perf", "predict", "pieces", "traces", "store", "sim", "report"}
ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "base": set(),
    "frozen": set(),
    "native": set(),
    "plural": set(),
    "run_terms": set(),
    "core": set(),
    "wire": set(),
    "stack": {"core"},
    "formulas": {"core"},
    "solve": {"core"},
    **{part: {"core"} for part in PARTS},
    **{part: {"core", "formulas"} for part in ("traces", "sim")},
    "report": {"core", "formulas", "sim"},
    "perf": {"core", "formulas", "solve"},
    "pieces": {"core", "stack", "formulas", "solve"},
    "policies": {"core", "pieces", "solve"},
    "engines": {"core", "wire"},
    "runtime": {"core", "stack", "formulas", "wire"},
    "judge": {"core"},
    "bounds": set(),  # shares no code with what it bounds
    "node": {"wire"},
    "train": set(),
    "policy": {"core", "stack", "pieces"},
    "__main__": {"cli"},
    "app": {
        *("core", "stack", "formulas", "policies", "engines", "judge", "runtime", "wire", "bounds"),
        *PARTS,
    }
    - {"report"},
    "service": {"app", "core", "report", "runtime", "stack"},
    "cli": {
        "app",
        "core",
        "engines",
        "judge",
        "report",
        "runtime",
        "service",
        "sim",
        "traces",
        "wire",
    },
    "testing": {"core", "stack", "perf", "predict", "sim", "pieces"},
}
CORE_NEEDS = {"numpy", "yaml"}  # yaml only where a text of it is read
LOOKUPS = {"build", "find", "names", "read_spec"}
# Who makes parts by name although it may not import them, and why.
BY_NAME = {
    ("runtime", "policy"): "the log names the policy that decides",
    ("service", "policy"): "a request names one, and is answered before anything changes",
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


# The judge shares no code with what it judges: it reads events, and what these are made of.
JUDGE_READS = ("events", "codec", "model", "errors", "stops", "plan.reasons", "spec.part_spec")


def test_the_judge_imports_only_how_events_are_read() -> None:
    reads = tuple(f"weft.core.{name}" for name in JUDGE_READS)
    wrong = [
        f"{path.relative_to(SRC)}:{line} imports {name}"
        for path in modules()
        if room_of(path) == "judge"
        for name, line in imports(path)
        if name.startswith("weft.")
        and not name.startswith((*reads, "weft.judge", "weft.frozen", "weft.plural"))
    ]

    assert not wrong


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


# Parts of published systems that are no rules: trace formats, and speeds that simulations run at.
TRUE = ("trace.py", "truth.py", "speeds.py")


def pure_modules() -> list[Path]:
    """The policies and pieces, wherever they are."""
    own = [p for p in modules() if p.relative_to(SRC).parts[0] in ("policies", "pieces")]
    return own + [p for p in paper_modules() if p.name not in TRUE]


def test_policies_and_pieces_never_import_the_truth() -> None:
    looked = pure_modules()

    wrong = [
        name_file(p)
        for p in looked
        for name, _ in imports(p)
        if name.startswith("weft.core.model.trace")
    ]

    assert looked
    assert not wrong


def test_policies_and_pieces_touch_no_clock_no_files_and_no_global_randomness() -> None:
    forbidden = {"time", "datetime", "random", "os", "pathlib", "io", "socket", "subprocess"}
    wrong = [
        f"{name_file(p)} imports {name}"
        for p in pure_modules()
        for name, _ in imports(p)
        if name.split(".")[0] in forbidden
    ]

    assert not wrong


def test_the_core_needs_next_to_nothing_besides_the_standard_library() -> None:
    wrong = [
        f"{p.name} imports {name}"
        for p in modules()
        if p.relative_to(SRC).parts[0] == "core"
        for name, _ in imports(p)
        if (top := name.split(".")[0]) not in sys.stdlib_module_names
        and top not in CORE_NEEDS | {"weft"}
    ]

    assert not wrong


TRAIN = SRC.parents[2] / "weft-train" / "src" / "weft_train"
TRAIN_NEEDS = {"fsspec", "torch", "weft_train"}  # torch brings fsspec
# Frameworks that a script has imported before it imports the callback for them.
CALLBACKS = {
    "huggingface": {"accelerate", "transformers"},
    "lightning": {"lightning"},
    "ray": {"ray"},
}


def outside(path: Path, *, late: bool) -> set[str]:
    """What a module imports besides the standard library and its own folder; `late` ones too."""
    tree = nodes(path) if late else parsed(path).body
    named = [each for each in tree if isinstance(each, ast.Import | ast.ImportFrom)]
    names = {
        name
        for node in named
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)] * (node.level != 1)
        )
    }
    return {top for name in names if (top := name.split(".")[0]) not in sys.stdlib_module_names}


def test_what_a_rank_shares_with_its_agent_imports_nothing_else() -> None:
    base = sorted((SRC / "base").glob("*.py"))

    assert len(base) > 5
    assert {path.name: names for path in base if (names := outside(path, late=False))} == {}
    assert (TRAIN / "base").resolve() == SRC / "base", "both ship the same files"


def test_a_training_needs_torch_alone() -> None:
    files = [path for path in TRAIN.rglob("*.py") if not path.is_relative_to(TRAIN / "base")]
    wrong = {
        path.name: names
        for path in files
        if (names := outside(path, late=False) - TRAIN_NEEDS - CALLBACKS.get(path.stem, set()))
    }

    assert len(files) > 30
    assert not wrong
    assert not [path for path in files if "weft" in outside(path, late=True)]


def test_the_scheduler_imports_neither_torch_nor_trainings() -> None:
    wrong = [
        path.relative_to(SRC).as_posix()
        for path in modules()
        if outside(path, late=True) & {"torch", "weft_train"}
    ]

    assert wrong == ["train.py"], "it hands out weft_train by the name that it had"


# ---- the table of these rules: WEFT_UPDATE_FIGURE=1 writes it; the picture of what is imported

DESIGN = SRC.parents[3] / "docs" / "explanation" / "design.md"
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


def figure() -> str:
    """The rooms as a table, those that import most first."""
    graph = arrows()
    lines = ["| room | what it is | imports |", "|---|---|---|"]
    for room in sorted(graph, key=lambda room: (-len(reach(graph, room)), room)):
        purpose = (ast.get_docstring(parsed(SRC / room / "__init__.py")) or "").splitlines()[0]
        listed = ", ".join(f"`{other}`" for other in sorted(graph[room]))
        lines.append(f"| `{room}` | {purpose} | {listed} |")
    return "\n".join(lines)


def test_every_arrow_that_is_allowed_is_used() -> None:
    unused = {room: left for room in ALLOWED if (left := ALLOWED[room] - {room} - used_by(room))}

    assert not unused


def test_the_table_of_rooms_is_what_is_allowed() -> None:
    text = DESIGN.read_text()
    drawn = re.search(f"{re.escape(BEGIN)}\n(.*?)\n{re.escape(END)}", text, re.DOTALL)
    assert drawn, f"{DESIGN.name} has no place for the table"
    if os.environ.get("WEFT_UPDATE_FIGURE"):
        DESIGN.write_text(text[: drawn.start(1)] + figure() + text[drawn.end(1) :])
        return

    assert drawn[1] == figure(), "WEFT_UPDATE_FIGURE=1 pytest tests/house/test_layers.py"


def test_the_picture_of_the_house_is_what_is_imported() -> None:
    drawn = draw(*read_rooms(SRC.parents[3]))

    assert PICTURE.read_text() == drawn, "run `python -m benchmarks.house --picture`"
    assert PICTURE.name in DESIGN.read_text()


def test_the_picture_leaves_out_what_others_imply_and_nothing_else() -> None:
    graph = {"cli": {"app", "core", "wire"}, "app": {"core"}, "core": set(), "wire": set()}

    assert reduce(graph) == {"cli": {"app", "wire"}, "app": {"core"}, "core": set(), "wire": set()}
    assert floors(graph) == {"cli": 2, "app": 1, "core": 0, "wire": 0}
    assert floors({"a": {"b"}, "b": {"a"}}).keys() == {"a", "b"}  # a circle is drawn, too


def test_imports_of_other_distributions_are_arrows_and_docstrings_are_none(tmp_path: Path) -> None:
    files = {
        "weft/src/weft/core/job.py": "",
        "weft/src/weft/app/run.py": '"""\nfrom weft.cli import x\n"""\nfrom weft.core.job import J',
        "weft/src/weft/cli/main.py": "    import weft.app.run",
        "weft-papers/src/weft_papers/sia/policy.py": "from weft.core.job import J",
        "weft-papers/src/weft_papers/sia/tests/test_sia.py": "from weft.app import run",
    }
    for name, text in files.items():
        path = tmp_path / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    graph, homes = read_rooms(tmp_path)

    assert graph == {"app": {"core"}, "cli": {"app"}, "core": set(), "weft-papers": {"core"}}
    assert homes["weft-papers"] == "weft-papers"
