"""What a plug-in may import is written on one page, and the published systems keep to it."""

from __future__ import annotations

import re
import tomllib

from tests.house.sources import PAPERS, ROOT, SRC, modules, name_file, name_module, paper_modules
from tests.house.test_layers import imports

from weft.core.spec.elsewhere import PAPER_NAMES
from weft.core.spec.registry import GROUPS

PAGE = ROOT / "docs" / "reference" / "plugin-surface.md"
POINTS = tomllib.loads((PAPERS.parents[1] / "pyproject.toml").read_text())["project"][
    "entry-points"
]
SURFACE = set(re.findall(r"^\| `(weft[\w.]*)` \|", PAGE.read_text(), re.MULTILINE))


def is_documented(module: str) -> bool:
    """A name of the page stands for a module, or a package with all that is in it."""
    parts = module.split(".")
    return any(".".join(parts[:count]) in SURFACE for count in range(2, len(parts) + 1))


def test_published_systems_import_only_what_is_documented_for_plugins() -> None:
    past = [
        f"{name_file(path)}:{line} imports {name}"
        for path in paper_modules()
        for name, line in imports(path)
        if name.split(".")[0] == "weft" and not is_documented(name)
    ]

    assert not past, f"import what {PAGE.name} lists, or list it there for everyone's plug-ins"


def test_every_documented_module_exists_and_is_used() -> None:
    ours = {name_module(path) for path in modules()}
    used = {name for path in paper_modules() for name, _ in imports(path)}

    assert ours >= SURFACE
    assert not [
        name
        for name in SURFACE - {"weft.policy"}
        if not any(other == name or other.startswith(f"{name}.") for other in used)
    ]


def test_a_module_past_the_surface_is_noticed() -> None:
    assert is_documented("weft.policy")
    assert not is_documented("weft.app.simulate.api")
    assert not is_documented("weft")


def test_weft_imports_nothing_of_the_published_systems() -> None:
    circle = [
        f"{name_file(path)}:{line} imports {name}"
        for path in modules()
        for name, line in imports(path)
        if name.split(".")[0] == "weft_papers"
    ]

    assert SRC.is_dir()
    assert not circle


def test_weft_knows_the_names_that_weft_papers_registers() -> None:
    kinds = {group: kind for kind, group in GROUPS.items()}

    assert {kinds[group]: set(names) for group, names in POINTS.items()} == {
        kind: set(names.split()) for kind, names in PAPER_NAMES.items()
    }


def test_every_published_system_has_a_page_in_its_folder() -> None:
    folders = [path for path in PAPERS.iterdir() if (path / "__init__.py").is_file()]

    assert len(folders) > 30
    assert not [f.name for f in folders if f.name != "tests" and not (f / "README.md").is_file()]
