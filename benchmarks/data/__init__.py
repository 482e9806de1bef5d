"""The public research data that benchmarks and tests read: what there is, and where it lies here.

`python -m benchmarks.data list` shows the sets, `python -m benchmarks.data fetch NAME` gets them.
Everything that reads the data asks `need` (or, in tests, the fixture `data`) for its path.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Repository:
    """A public repository at one commit."""

    name: str
    address: str  # owner/name on GitHub
    commit: str
    licence: str

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"https://github.com/{self.address}"


@dataclass(frozen=True)
class DataFile:
    """One file of a set, and the published file that it is made from."""

    path: str  # below the data folder
    sha256: str  # of its content, uncompressed
    size: int  # bytes of the published file; of this one where it is derived
    repository: Repository | None  # None: derived, nothing fetches it
    public_path: str
    transform: str

    def is_intact(self, folder: Path) -> bool:
        """Tell whether the file in `folder` has the published content."""
        content = (folder / self.path).read_bytes()
        if self.path.endswith(".gz"):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError):
                return False
        return hashlib.sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class DataSet:
    """A folder of research data with its origin."""

    name: str
    folder: str
    what: str
    origin: Repository | None  # None: made by this project
    licence: str
    derived: str  # what made the files that nothing fetches
    files: tuple[DataFile, ...]

    @property
    def fetched(self) -> tuple[DataFile, ...]:
        """Files that `fetch` gets."""
        return tuple(file for file in self.files if file.repository)

    @property
    def size(self) -> int:
        """Bytes of all files as published."""
        return sum(file.size for file in self.files)


@cache
def data_sets() -> dict[str, DataSet]:
    """Return every set by its name, from sets.toml and files.tsv."""
    table = tomllib.loads((HERE / "sets.toml").read_text())
    sources = {name: Repository(name, **about) for name, about in table["repositories"].items()}
    with (HERE / "files.tsv").open(newline="") as lines:
        rows = [
            DataFile(
                row["path"],
                row["sha256"],
                int(row["bytes"]),
                None if row["transform"] == "derived" else sources[row["repository"]],
                row["public path"],
                row["transform"],
            )
            for row in csv.DictReader(lines, delimiter="\t")
        ]
    return {
        name: DataSet(
            name,
            about["folder"],
            about["what"],
            sources[about["origin"]] if "origin" in about else None,
            about.get("licence") or sources[about["origin"]].licence,
            about.get("derived", ""),
            tuple(row for row in rows if row.path.startswith(about["folder"] + "/")),
        )
        for name, about in table["sets"].items()
    }


def data_folder() -> Path:
    """Return the folder of research data: $WEFT_DATA, else one beside or in this checkout."""
    beside = ROOT.parent / "shared" / "data"
    fallback = beside if beside.is_dir() else ROOT / "research-data"
    return Path(os.environ.get("WEFT_DATA") or fallback)


def missing(*paths: str) -> str:
    """Say what of these files, folders or sets is not here and how to get it; '' if nothing."""
    folder = data_folder()
    absent: dict[str, list[DataFile]] = {}
    for path in paths:
        owner, files = _find(path)
        lacking = [file for file in files if not (folder / file.path).is_file()]
        if lacking:
            absent.setdefault(owner.name, []).extend(lacking)
    return "; ".join(_describe(data_sets()[name], files) for name, files in absent.items())


def _describe(owner: DataSet, absent: list[DataFile]) -> str:
    source = f" ({owner.origin.url})" if owner.origin else ""
    name = absent[0].path + (f" and {len(absent) - 1} more files" if absent[1:] else "")
    where = f"research data {owner.name}{source}: {name} not in {data_folder()}"
    if any(file.repository for file in absent):
        return f"{where}; get it by `python -m benchmarks.data fetch {owner.name}`"
    return f"{where}; nothing fetches derived files, docs/reference/research-data.md says more"


def need(*paths: str) -> Path:
    """Return the data folder; where one of `paths` is missing, say how to get it and exit."""
    if absent := missing(*paths):
        print(f"skipped: {absent}")
        sys.exit(0)
    return data_folder()


def _find(path: str) -> tuple[DataSet, list[DataFile]]:
    for owner in data_sets().values():
        files = [f for f in owner.files if f"{f.path}/".startswith(f"{path}/")]
        if files:
            return owner, files
    raise LookupError(f"no research data {path!r}; `python -m benchmarks.data list` shows the sets")
