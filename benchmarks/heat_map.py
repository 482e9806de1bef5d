"""A grid of three settings as shaded cells, in SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log

Cell = tuple[str, str, str]
CELL_W, CELL_H, LEFT, TOP, GAP = 86, 38, 62, 64, 26
DEEPEST = 3.0  # times the best: from there on no shade is deeper
FROM, TO = (255, 250, 243), (224, 138, 46)


def draw_grid(hours: Mapping[Cell, float], others: Mapping[str, float]) -> str:
    """A panel for each middle setting, rows by the first and columns by the last; hours in cells.

    `others` are listed below, the best first.
    """
    rows, panels, columns = (_values(hours, i) for i in range(3))
    best = min(hours.values())
    width = LEFT + len(panels) * (len(columns) * CELL_W + GAP)
    bottom = TOP + len(rows) * CELL_H
    height = bottom + 40 + 16 * ((len(others) + 1) // 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">average completion time (h); best '
        f"{best:.3f}</text>",
    ]
    for i, panel in enumerate(panels):
        x0 = LEFT + i * (len(columns) * CELL_W + GAP)
        parts.append(f'<text x="{x0}" y="{TOP - 24}" fill="#5c6470">size={escape(panel)}</text>')
        for j, column in enumerate(columns):
            x = x0 + (j + 0.5) * CELL_W
            parts.append(
                f'<text x="{x}" y="{TOP - 6}" text-anchor="middle">{escape(column)}</text>'
            )
            for k, row in enumerate(rows):
                y = TOP + k * CELL_H
                parts.append(_cell(x0 + j * CELL_W, y, hours.get((row, panel, column)), best))
    for k, row in enumerate(rows):
        y = TOP + (k + 0.62) * CELL_H
        parts.append(f'<text x="10" y="{y:.0f}" font-weight="bold">{escape(row)}</text>')
    parts.append(f'<text x="10" y="{bottom + 24}" fill="#5c6470">published:</text>')
    for i, (name, value) in enumerate(sorted(others.items(), key=lambda entry: entry[1])):
        x, y = 90 + (i % 2) * width // 2, bottom + 24 + 16 * (i // 2)
        parts.append(f'<text x="{x}" y="{y}">{escape(name)} {value:.3f}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _values(hours: Mapping[Cell, float], at: int) -> Sequence[str]:
    return tuple(dict.fromkeys(cell[at] for cell in hours))


def _cell(x: float, y: float, value: float | None, best: float) -> str:
    if value is None:
        return ""
    heat = min(log(value / best) / log(DEEPEST), 1.0)
    colour = ",".join(str(round(a + heat * (b - a))) for a, b in zip(FROM, TO, strict=True))
    star = "★ " if value <= best else ""
    middle = x + CELL_W / 2
    return (
        f'<rect x="{x}" y="{y}" width="{CELL_W - 2}" height="{CELL_H - 2}" fill="rgb({colour})"/>'
        f'<text x="{middle}" y="{y + 16}" text-anchor="middle">{star}{value:.3f}</text>'
        f'<text x="{middle}" y="{y + 30}" text-anchor="middle" font-size="10" fill="#444">'
        f"{value / best:.2f} x</text>"
    )
