"""Where pages of parts are: in the folder of a published system, else below docs/reference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parent / "reference"
ROOT = REFERENCE.parent.parent
PAPERS = ROOT / "packages" / "weft-papers" / "src"
SOURCES = (ROOT / "packages" / "weft" / "src", PAPERS)


def source_of(part: Any) -> Path:
    """The file that a part is written in."""
    file = Path(*part.__module__.split(".")).with_suffix(".py")
    return next(source / file for source in SOURCES if (source / file).is_file())


def page_of(kind: str, name: str, part: Any) -> Path:
    """The file of its page; `kind` is `policies` or `wrappers`."""
    source = source_of(part)
    if source.is_relative_to(PAPERS):
        return source.parent / "README.md"
    return REFERENCE / kind / f"{name}.md"


def link(page: Path, target: Path) -> str:
    """How `page` names another file."""
    return Path(os.path.relpath(target, page.parent)).as_posix()
