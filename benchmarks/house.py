"""How large the house is.

    python -m benchmarks.house                   # lines of each distribution, now and before
    python -m benchmarks.house --picture [FILE]  # rooms and imports as SVG
    python -m benchmarks.house --whole [CHECKOUT ...]

`--whole` adds files per folder, repeated code, import time and walks. Repeated code is counted in
pairs of files of `src` that share six lines in a row, comments, blank lines and imports aside. A
walk is the shortest way by imports from where a person begins to read to where the thing is done:
files that are opened, and in brackets how often the room changes.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict, deque
from itertools import combinations, pairwise
from pathlib import Path

from benchmarks.house_picture import draw, read_rooms, summarise
from benchmarks.measure import command

HERE = Path(__file__).resolve().parents[1]
PICTURE = HERE / "docs" / "images" / "house.svg"
BUDGET = {
    "weft": 95_000,
    "weft-papers": 20_000,
    "weft-train": 6_000,
    "weft-client": 1_500,
}  # lines of each distribution
BEFORE = {"last commit": "", "1 day ago": "1.day.ago", "1 week ago": "1.week.ago"}
SOURCE = re.compile(r"(?:packages/([\w-]+)/)?src/(?!.*/tests/).*\.py")
COMPARISON = re.compile(r".*/weft_papers/(?:.*/)?published.*")  # no wheel has these
RUN, COMMON = 6, 8  # lines a run; a run in more files than this is a habit, not a copy
WALKS = {
    "a simulation is decided": ("cli.commands.simulate.simulate", "core.scheduler"),
    "a service decides": ("cli.commands.cluster.serve", "core.scheduler"),
    "a request becomes an event": ("service.routes.jobs.jobs", "core.events.event"),
    "a policy places a gang": ("policies.srtf", "core.state.capacity"),
    "an engine starts an attempt": ("engines.local", "wire.attempt"),
    "a report shows a metric": ("cli.commands.simulate.simulate", "formulas.metrics"),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--whole", action="store_true", help="measure everything")
    parser.add_argument("--picture", nargs="?", type=Path, const=PICTURE, help="write it here")
    asked = parser.parse_args()
    if asked.picture:
        graph, homes = read_rooms(HERE)
        asked.picture.write_text(draw(graph, homes))
        print(f"{asked.picture}: {summarise(graph)}")
        return
    for root in asked.checkouts:
        print(f"lines of Python in the sources of {root.resolve()}")
        show_trend(root)
        if asked.whole:
            for name, value in measure(root / "packages" / "weft" / "src" / "weft").items():
                print(f"  {name:34} {value}")


def show_trend(root: Path) -> None:
    """Print the lines of each distribution now, at earlier commits, and its budget."""
    columns = {"now": count_now(root)}
    for name, when in BEFORE.items():
        columns[name] = count_then(root, when)
    print(f"  {'':24}" + "".join(f"{name:>13}" for name in columns) + f"{'budget':>13}")
    for home in columns["now"]:
        cells = "".join(f"{counts.get(home, '-'):>13}" for counts in columns.values())
        print(f"  {home:24}{cells}{BUDGET.get(home, '-'):>13}")


def count_now(root: Path) -> dict[str, int]:
    """Count the lines of each distribution in the work tree."""
    lines: Counter[str] = Counter()
    for path in root.glob("packages/*/src/**/*.py"):
        if match := SOURCE.fullmatch(path.relative_to(root).as_posix()):
            for home in find_homes(path.as_posix(), match[1]):
                lines[home] += count_lines(path)
    return dict(sorted(lines.items()))


def find_homes(path: str, home: str) -> list[str]:
    """Return the rows that a file counts in: its distribution's, and what no wheel has of it."""
    return [home, f"{home}, in no wheel"] if COMPARISON.fullmatch(path) else [home]


def count_then(root: Path, when: str) -> dict[str, int]:
    """Count the lines of each distribution at the last commit before `when`; {} if unknown."""
    before = [f"--before={when}"] if when else []
    commit = run_git(root, "rev-list", "-1", *before, "HEAD").strip()
    lines: Counter[str] = Counter()
    listed = run_git(root, "grep", "-c", "", commit, "--", "*.py") if commit else ""
    for line in listed.splitlines():
        _, path, count = line.split(":")
        if match := SOURCE.fullmatch(path):
            for home in find_homes(path, match[1] or "weft"):
                lines[home] += int(count)
    return dict(lines)


def run_git(root: Path, *arguments: str) -> str:
    """Return what git prints, or nothing outside a repository."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # no git: the trend is unknown
        return ""
    return done.stdout


def measure(weft: Path) -> dict[str, str]:
    """What is printed of one checkout."""
    sizes = {}
    for room in ("src", "tests", "benchmarks", "docs"):
        files = [
            *(weft.parents[1 if room == "src" else 3] / room).rglob(
                "*.md" if room == "docs" else "*.py"
            )
        ]
        sizes[room] = f"{len(files):6} files {sum(map(count_lines, files)):8} lines"
    folders = Counter(path.parent for path in weft.rglob("*.py"))
    largest = [f"{path.relative_to(weft)} {n}" for path, n in folders.most_common(5)]
    texts = {path: path.read_text() for path in sorted(weft.rglob("*.py"))}
    graph = {module_name(weft, path): imports(text) for path, text in texts.items()}
    walks = {name: describe_walk(graph, *ends) for name, ends in WALKS.items()}
    return {
        **sizes,
        "files in the largest folders": ", ".join(largest),
        "pairs of files that repeat": str(count_repeats(texts)),
        "modules with one reader": str(count_single_readers(graph, weft)),
        "import weft, CPU s": f"{import_time(weft.parent):.3f}",
        **walks,
    }


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def module_name(weft: Path, path: Path) -> str:
    return ".".join(path.relative_to(weft).with_suffix("").parts).removesuffix(".__init__")


def imports(text: str) -> set[str]:
    """Modules of ours that a file may import; a name may be a module of the package it is from."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft."):
            module = (node.module or "").removeprefix("weft.")
            names |= {module, *(f"{module}.{each.name}" for each in node.names)}
    return names


def describe_walk(graph: dict[str, set[str]], start: str, end: str) -> str:
    start, end = find_module(graph, start), find_module(graph, end)
    came, todo = {start: ""}, deque([start])
    while todo and end not in came:
        here = todo.popleft()
        for there in sorted(graph.get(here, set()) & graph.keys() - came.keys()):
            came[there] = here
            todo.append(there)
    if end not in came or start not in graph:
        return "no such walk"
    way = [end]
    while came[way[-1]]:
        way.append(came[way[-1]])
    rooms = [name.split(".")[0] for name in way]
    changes = sum(room != other for room, other in pairwise(rooms))
    return f"{len(way)} files ({changes})"


def find_module(graph: dict[str, set[str]], name: str) -> str:
    """The module, or one of the same name elsewhere in its room, as in older checkouts."""
    room, last = name.split(".")[0], name.split(".")[-1]
    alike = (each for each in sorted(graph) if each.split(".")[0] == room)
    return name if name in graph else next((m for m in alike if m.split(".")[-1] == last), name)


def count_repeats(texts: dict[Path, str]) -> int:
    places: defaultdict[tuple[str, ...], set[Path]] = defaultdict(set)
    for path, text in texts.items():
        lines = [" ".join(line.split()) for line in text.splitlines()]
        aside = ("#", '"""', "import ", "from ")
        kept = [line for line in lines if len(line) > 2 and not line.startswith(aside)]
        for i in range(len(kept) - RUN + 1):
            places[tuple(kept[i : i + RUN])].add(path)
    shared = [sorted(paths) for paths in places.values() if 1 < len(paths) <= COMMON]
    return len({pair for paths in shared for pair in combinations(paths, 2)})


def count_single_readers(graph: dict[str, set[str]], weft: Path) -> int:
    """Modules that exactly one other imports; packages are left out."""
    readers = Counter(name for names in graph.values() for name in names & graph.keys())
    return sum(
        n == 1 and not (weft / name.replace(".", "/")).is_dir() for name, n in readers.items()
    )


def import_time(source: Path) -> float:
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import weft"
    return statistics.median(command([sys.executable, "-c", code])[0] for _ in range(5))


if __name__ == "__main__":
    main()
