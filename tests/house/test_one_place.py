"""What CONTRIBUTING says of additions: one file, and one line that names it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from weft.cli.main import COMMANDS
from weft.formulas.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "packages" / "weft" / "src" / "weft"
POINTS = tomllib.loads((ROOT / "packages" / "weft" / "pyproject.toml").read_text())["project"][
    "entry-points"
]
REGISTERED = [
    (group, name, where.partition(":")[0])
    for group in ("weft.policies", "weft.engines", "weft.predictors", "weft.wrappers")
    for name, where in POINTS[group].items()
]
# Metrics that are also facts: how many jobs there were, how many of them did not finish, whether
# anybody waited, and the one that policies are compared by.
NAMED = {"jobs", "finished", "failed", "avg_jct_h", "avg_queue_h", "decisions"}


# Parts that are also used as plain values, and by whom.
WIRED = {
    ("weft.predictors", "app/serve/predicting.py"),
    ("weft.predictors", "testing/check.py"),
    ("weft.predictors", "app/evaluate.py"),
}


def text_of(path: Path) -> str:
    return path.read_text()


def test_a_registered_part_is_imported_by_nothing_but_its_own_room() -> None:
    groups = {module: group for group, _, module in REGISTERED}
    imported = re.compile(r"^\s*(?:from|import) (weft[\w.]*)", re.MULTILINE)

    others = [
        (module, path.relative_to(SRC).as_posix())
        for path in SRC.rglob("*.py")
        for module in groups.keys() & set(imported.findall(text_of(path)))
        if not path.is_relative_to(SRC / module.split(".")[1])
        and (groups[module], path.relative_to(SRC).as_posix()) not in WIRED
    ]

    assert groups
    assert not others


def test_a_command_is_a_file_and_a_line() -> None:
    table = text_of(SRC / "cli" / "main.py")
    files = {path.stem for path in (SRC / "cli" / "commands").rglob("*.py")} - {"__init__"}

    modules = {
        (command.where or command.name.replace("-", "_")).partition(":")[0] for command in COMMANDS
    }

    assert modules == files
    for module in files:
        assert f"commands.{module} " not in table
        assert f"import {module}\n" not in table


def test_a_file_of_routes_is_named_in_one_place() -> None:
    folder = SRC / "service" / "routes"
    named = text_of(folder / "__init__.py")
    files = {path.stem for path in folder.rglob("*.py")} - {"__init__"}

    missing = [name for name in files if named.count(f"{name}.router") != 1]
    elsewhere = [
        path.name
        for path in SRC.rglob("*.py")
        if not path.is_relative_to(folder) and "include_router" in text_of(path)
    ]

    assert not missing
    assert elsewhere == ["main.py"]


def test_a_metric_is_named_nowhere_else() -> None:
    names = {metric.name for metric in METRICS} - NAMED

    elsewhere = [
        f"{path.relative_to(SRC)}: {name}"
        for path in SRC.rglob("*.py")
        if path.name != "metrics.py"
        for name in names
        if f'"{name}"' in text_of(path)
    ]

    assert not elsewhere


def test_contributing_names_places_that_exist() -> None:
    rows = re.findall(
        r"`(packages/weft/src/weft/[\w/]+(?:\.py)?/?)", text_of(ROOT / "CONTRIBUTING.md")
    )

    missing = [row for row in rows if "NAME" not in row and not (ROOT / row).exists()]
    assert len(rows) >= 6
    assert not missing
