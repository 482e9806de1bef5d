"""The reference page of research data, from the tables of `benchmarks.data`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # benchmarks are not installed

from benchmarks.data import DataSet, Repository, data_sets

BEGIN = """\
# Research data

Benchmarks and some tests read traces and measurements that research groups published. They are not
part of this repository. This page says where each set comes from and how to get it.

```sh
python -m benchmarks.data list            # the sets, and how much of each is here
python -m benchmarks.data list sia        # its files, repository, commit and licence
python -m benchmarks.data fetch sia muri  # get sets; `all` gets every one
```

The data goes to the folder in `WEFT_DATA`, or to `research-data` in the checkout. A fetch that was
cut off continues where it stopped, files that are there are left alone, and every file is checked
against its SHA-256 digest. `--by git` uses git instead of https; `--from ADDRESS` asks a mirror.
Without a set that it needs, a benchmark or a test says which one and is skipped.

Some files are not published in the form in which we read them. Where a short rule makes one from a
published file, `fetch` applies it. The others are *derived*: made by hand, by a generator or from
files too large to fetch. Nothing fetches those; the last table says what made them.

## Sets

A set lies in its folder below the data folder, with the file names that `list NAME` shows.

| set | content | folder | files | derived | MB | repository | licence |
|---|---|---|--:|--:|--:|---|---|
"""
COMMITS = """
## Repositories and commits

Files are fetched at these commits. Of a repository from which nothing is fetched this is the newest
commit that we know; the one that its derived files were read at is unknown.

| repository | commit | files |
|---|---|--:|
"""
DERIVED = """
## Derived files

| set | what made them |
|---|---|
"""


def data_page(made: str) -> str:
    """Return the page under the line that says what made it."""
    sets = data_sets().values()
    rows = "".join(set_row(data_set) for data_set in sets)
    files = [file for data_set in sets for file in data_set.fetched]
    origins = {data_set.origin for data_set in sets if data_set.origin} | {
        f.repository for f in files
    }
    commits = "".join(
        f"| {link(origin)} | `{origin.commit}` | {sum(f.repository == origin for f in files)} |\n"
        for origin in sorted(filter(None, origins), key=lambda o: o.address.lower())
    )
    derived = "".join(
        f"| `{data_set.name}` | {data_set.derived} |\n" for data_set in sets if data_set.derived
    )
    return f"{made}\n{BEGIN}{rows}{COMMITS}{commits}{DERIVED}{derived}"


def set_row(data_set: DataSet) -> str:
    """Return the row of one set."""
    origin = link(data_set.origin) if data_set.origin else "this project"
    files, derived = len(data_set.files), len(data_set.files) - len(data_set.fetched)
    cells = (
        f"`{data_set.name}`",
        data_set.what,
        f"`{data_set.folder}`",
        f"{files} | {derived} | {data_set.size / 1e6:.2f}",
        origin,
        data_set.licence,
    )
    return f"| {' | '.join(cells)} |\n"


def link(source: Repository) -> str:
    """Return the repository's name as a link."""
    return f"[{source.address}]({source.url})"
