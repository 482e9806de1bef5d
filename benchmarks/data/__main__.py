"""List the research data and fetch it: `python -m benchmarks.data list`, `... fetch sia muri`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence

from benchmarks.data import DataSet, data_folder, data_sets
from benchmarks.data.fetching import FetchError, Git, Https, Source, fetch


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("list", help="show the sets, or all about those named")
    shown.add_argument("names", nargs="*", metavar="NAME")
    got = commands.add_parser("fetch", help="get sets, continuing where an earlier try stopped")
    got.add_argument("names", nargs="+", metavar="NAME", help="a set, or `all`")
    got.add_argument("--by", choices=["https", "git"], default="https", help="how to get files")
    got.add_argument("--from", dest="base", help="address of a mirror, instead of GitHub's")
    asked = parser.parse_args(arguments)
    known = data_sets()
    names = list(known) if asked.names == ["all"] else asked.names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no set named {', '.join(unknown)}; there are {', '.join(known)}")
    if asked.command == "list":
        if not names:
            show_all()
        for name in names:
            show(known[name])
        return 0
    return get([known[name] for name in names], asked.by, asked.base)


def show_all() -> None:
    """Print one line per set."""
    print(f"in {data_folder()} (set WEFT_DATA to change that):\n")
    print(f"{'set':<24} {'here':>9} {'derived':>7} {'MB':>5}  origin, licence")
    for data_set in data_sets().values():
        here = f"{count_here(data_set)}/{len(data_set.files)}"
        derived = len(data_set.files) - len(data_set.fetched)
        origin = data_set.origin.address if data_set.origin else "this project"
        columns = f"{data_set.name:<24} {here:>9} {derived:>7} {data_set.size / 1e6:>5.2f}"
        print(f"{columns}  {origin}; {data_set.licence}")
    print("\nderived: made from published files or by this project, and not fetched")


def count_here(data_set: DataSet) -> int:
    """Count the files of a set that lie in the data folder."""
    return sum((data_folder() / file.path).is_file() for file in data_set.files)


def show(data_set: DataSet) -> None:
    """Print all about a set, its layout too."""
    print(f"{data_set.name}: {data_set.what}")
    print(f"{count_here(data_set)} of {len(data_set.files)} files are here")
    sources = {file.repository for file in data_set.files if file.repository} | {data_set.origin}
    for source in sorted((s for s in sources if s), key=lambda source: source.name):
        print(f"from {source.url} at {source.commit}, licence: {source.licence}")
    if data_set.derived:
        print(f"derived: {data_set.derived}")
    for file in data_set.files:
        source_path = f"<- {file.public_path} ({file.transform})" if file.repository else "derived"
        print(f"  {file.path}  {file.size} bytes  {source_path}")


def get(sets: Sequence[DataSet], by: str, base: str | None) -> int:
    """Fetch sets one after the other; the exit code is 0 if every file is here and right."""
    folder = data_folder()
    parts = folder / ".parts"
    way: type[Https | Git] = Git if by == "git" else Https
    source: Source = way(parts, base.rstrip("/")) if base else way(parts)
    failures = 0
    for data_set in sets:
        failed: list[str] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            failed = fetch(folder, data_set.fetched, source, Bar(data_set))
        except FetchError as error:
            failed = [str(error)]
        except PermissionError as error:
            sys.exit(f"cannot write {error.filename}; set WEFT_DATA to a folder of yours")
        except KeyboardInterrupt:
            sys.exit("\nstopped; the same command continues here")
        here, whole = count_here(data_set), len(data_set.files)
        print(f"{data_set.name}: {here} of {whole} files are in {folder / data_set.folder}")
        if here < whole and data_set.derived:
            print(f"  derived files, which nothing fetches: {data_set.derived}")
        for sentence in failed:
            print(f"  error: {sentence}", file=sys.stderr)
        failures += len(failed)
    if failures:
        print(f"{failures} failed; the same command continues where this one stopped")
        return 1
    shutil.rmtree(parts, ignore_errors=True)
    return 0


class Bar:
    """Progress of one set on a terminal."""

    def __init__(self, data_set: DataSet) -> None:
        self.name, self.done = data_set.name, 0
        self.whole = sum(file.size for file in data_set.fetched)

    def __call__(self, new: int) -> None:
        """Count bytes."""
        self.done += new
        if sys.stderr.isatty():
            part = min(1.0, self.done / self.whole) if self.whole else 1.0
            end = "\n" if part == 1.0 else ""
            print(f"\r{self.name} {'#' * int(30 * part):<30} {part:4.0%}", end=end, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
