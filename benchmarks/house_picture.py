"""A picture of the house: rooms are folders, floors are depth, arrows are imports.

    python -m benchmarks.house --picture docs/images/house.svg

The folders of `weft` are rooms; every other distribution is one. An arrow that others imply is left
out: who imports `app`, which imports `core`, may import `core` as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

Graph = dict[str, set[str]]

TEXT = re.compile(r'"""(?:.|\n)*?"""')
IMPORT = re.compile(r"^\s*(?:from|import) (weft(?:_\w+)?[\w.]*)", re.MULTILINE)
MAIN = "weft"
COLOURS = {
    MAIN: "#dbe9f6",
    "weft-papers": "#fdebd0",
    "weft-train": "#d9f0d3",
    "weft-client": "#eadcf4",
}
OTHER = "#eeeeee"
BOX_W, BOX_H, GAP_X, GAP_Y, EDGE = 104, 34, 26, 58, 24
SWEEPS = 8


def read_rooms(root: Path) -> tuple[Graph, dict[str, str]]:
    """Return which room imports which, and the distribution of each room."""
    owner: dict[str, str] = {}  # module -> room
    texts: dict[str, str] = {}
    homes: dict[str, str] = {}  # room -> distribution
    for source in sorted(root.glob("packages/*/src")):
        home = source.parent.name
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            if "tests" in parts or (home == MAIN and len(parts) < 3):
                continue
            room = parts[1] if home == MAIN else home
            module = ".".join(parts).removesuffix(".__init__")
            owner[module], homes[room] = room, home
            texts[module] = TEXT.sub("", path.read_text())
        for link in filter(Path.is_symlink, sorted(source.rglob("*"))):  # shipped by both
            owner[".".join(link.relative_to(source).parts)] = link.resolve().name
    graph: Graph = {room: set() for room in homes}
    for module, text in texts.items():
        for name in IMPORT.findall(text):
            room = find_owner(owner, name)
            if room and room != owner[module]:
                graph[owner[module]].add(room)
    return graph, homes


def find_owner(owner: Mapping[str, str], name: str) -> str:
    """Return the room of a module or of a name inside one."""
    while name and name not in owner:
        name = name.rpartition(".")[0]
    return owner.get(name, "")


def reach(graph: Graph, start: str) -> set[str]:
    """Return every room that can be reached by imports from `start`."""
    there: set[str] = set()
    ways = list(graph[start])
    while ways:
        room = ways.pop()
        if room not in there:
            there.add(room)
            ways += graph[room]
    return there


def reduce(graph: Graph) -> Graph:
    """Leave out arrows that a longer way implies; arrows of a circle stay."""
    below = {room: reach(graph, room) for room in graph}
    return {
        room: {
            other
            for other in others
            if not any(
                other in below[way] and room not in below[way] for way in others if way != other
            )
        }
        for room, others in graph.items()
    }


def floors(graph: Graph) -> dict[str, int]:
    """Return how far above the ground each room is: one more than the highest that it imports."""
    height: dict[str, int] = {}

    def climb(room: str, path: tuple[str, ...]) -> int:
        if room not in height:
            below = [climb(o, (*path, room)) for o in sorted(graph[room]) if o not in path]
            height[room] = 1 + max(below, default=-1)
        return height[room]

    for room in sorted(graph):
        climb(room, ())
    return height


def summarise(graph: Graph) -> str:
    """Return how many rooms, floors and arrows there are."""
    arrows = sum(map(len, graph.values()))
    return f"{len(graph)} rooms on {max(floors(graph).values()) + 1} floors, {arrows} arrows"


def draw(graph: Graph, homes: Mapping[str, str]) -> str:
    """Return the picture as SVG."""
    shown, height = reduce(graph), floors(graph)
    for room in (room for room, others in graph.items() if not others):  # just below who needs it
        height[room] = min((h for o, h in height.items() if room in graph[o]), default=1) - 1
    rows = order(shown, height)
    widest = max(map(len, rows))
    width = 2 * EDGE + widest * BOX_W + (widest - 1) * GAP_X
    tall = 2 * EDGE + len(rows) * BOX_H + (len(rows) - 1) * GAP_Y + 30
    corners = {}
    for level, row in enumerate(reversed(rows)):
        step = (width - 2 * EDGE) / len(row)
        for place, room in enumerate(row):
            x = EDGE + step * (place + 0.5) - BOX_W / 2
            corners[room] = (round(x, 1), EDGE + level * (BOX_H + GAP_Y))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" '
        f'width="{width}" height="{tall}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>Rooms of Weft and what they import: {summarise(graph)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    lines += [
        arrow(corners[room], corners[other])
        for room in sorted(shown)
        for other in sorted(shown[room])
    ]
    lines += [box(room, *corners[room], homes[room]) for room in sorted(corners)]
    lines += legend(sorted(set(homes.values())), tall - 14)
    return "\n".join([*lines, "</svg>", ""])


def order(graph: Graph, height: Mapping[str, int]) -> list[list[str]]:
    """Return the rooms of each floor, those beside each other that have the same neighbours."""
    rows = [sorted(r for r in graph if height[r] == h) for h in range(max(height.values()) + 1)]
    near = {
        room: graph[room] | {other for other in graph if room in graph[other]} for room in graph
    }
    for _ in range(SWEEPS):
        place = {room: (i + 0.5) / len(row) for row in rows for i, room in enumerate(row)}
        mean = {r: sum(place[o] for o in near[r]) / len(near[r]) if near[r] else 0.5 for r in graph}
        rows = [sorted(row, key=lambda room: (round(mean[room], 6), room)) for row in rows]
    return rows


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow from the bottom of one box to the top of another."""
    x, y = start[0] + BOX_W / 2, start[1] + BOX_H
    u, v = end[0] + BOX_W / 2, end[1]
    bend = GAP_Y * 0.6
    way = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} {v - 2:.0f}"
    return f'<path d="{way}" fill="none" stroke="#889" marker-end="url(#tip)"/>'


def box(room: str, x: float, y: float, home: str) -> str:
    """Return a room as a box with its name."""
    name = escape(room)
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="5" '
        f'fill="{COLOURS.get(home, OTHER)}" stroke="#556"/>'
        f'<text x="{x + BOX_W / 2}" y="{y + 22}" text-anchor="middle">{name}</text>'
    )


def legend(homes: list[str], y: float) -> list[str]:
    """Return a line that names the distributions by colour."""
    lines = []
    for number, home in enumerate(homes):
        x = EDGE + number * 150
        lines.append(
            f'<rect x="{x}" y="{y - 11}" width="14" height="14" '
            f'fill="{COLOURS.get(home, OTHER)}" stroke="#556"/>'
            f'<text x="{x + 20}" y="{y}">{escape(home)}</text>'
        )
    return lines
