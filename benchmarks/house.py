"""How large the house is: files, lines, files a folder, repeated code, import time, walks.

    python -m benchmarks.house [CHECKOUT ...]

Repeated code is counted in pairs of files of `src` that share six lines in a row, comments, blank
lines and imports aside. A walk is the shortest way by imports from where somebody begins to read to
where the thing is done: files that are opened, and in brackets how often the room changes.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict, deque
from itertools import combinations, pairwise
from pathlib import Path

from benchmarks.measure import command

HERE = Path(__file__).parents[1]
RUN, COMMON = 6, 8  # lines a run; a run in more files than this is a habit, not a copy
WALKS = {
    "a simulation is decided": ("cli.commands.simulate.simulate", "core.scheduler"),
    "a service decides": ("cli.commands.cluster.serve", "core.scheduler"),
    "a request becomes an event": ("service.routes.jobs.jobs", "core.events.event"),
    "a policy places a gang": ("policies.srtf", "core.state.capacity"),
    "an engine starts an attempt": ("engines.local", "wire.attempt"),
    "a report shows a metric": ("cli.commands.simulate.compare", "formulas.metrics"),
}


def main() -> None:
    for root in [Path(word) for word in sys.argv[1:]] or [HERE]:
        print(f"\n{root.resolve()}")
        for name, value in measure(root / "src" / "weft").items():
            print(f"  {name:34} {value}")


def measure(weft: Path) -> dict[str, str]:
    """What is printed of one checkout."""
    sizes = {}
    for room in ("src", "tests", "benchmarks", "docs"):
        files = [*(weft.parents[1] / room).rglob("*.md" if room == "docs" else "*.py")]
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
