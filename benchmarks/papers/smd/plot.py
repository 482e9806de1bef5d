"""Bars of utility and completion time by load, as a self-contained SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COLOURS = ("#1f77b4", "#ff7f0e", "#d9a066", "#2ca02c", "#7f7f7f")
WIDTH, HEIGHT, MARGIN = 380, 220, 40


def bars(loads: Sequence[float], table: Mapping[str, Sequence[tuple[float, ...]]]) -> str:
    """Two panels side by side: total utility, and average completion time in hours."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{HEIGHT + 40}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for panel, (title, column) in enumerate((("total utility", 0), ("average JCT, h", 2))):
        values = {name: [row[column] for row in rows] for name, rows in table.items()}
        parts += _panel(panel * WIDTH, title, loads, values)
    for i, name in enumerate(table):
        x = MARGIN + i * 140
        parts.append(
            f'<rect x="{x}" y="{HEIGHT + 14}" width="10" height="10" fill="{COLOURS[i]}"/>'
        )
        parts.append(f'<text x="{x + 14}" y="{HEIGHT + 23}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    left: int, title: str, loads: Sequence[float], values: Mapping[str, Sequence[float]]
) -> list[str]:
    top = max(max(column) for column in values.values())
    inside, tall = WIDTH - MARGIN - 10, HEIGHT - 2 * MARGIN
    group = inside / len(loads)
    wide = group * 0.8 / len(values)
    parts = [f'<text x="{left + MARGIN}" y="20" font-weight="bold">{title}</text>']
    for j, load in enumerate(loads):
        middle = left + MARGIN + (j + 0.4) * group
        parts.append(
            f'<text x="{middle:.0f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">'
            f"load {load:g}</text>"
        )
        for i, column in enumerate(values.values()):
            high = tall * column[j] / top
            x = left + MARGIN + j * group + i * wide
            parts.append(
                f'<rect x="{x:.1f}" y="{HEIGHT - MARGIN - high:.1f}" width="{wide - 2:.1f}" '
                f'height="{high:.1f}" fill="{COLOURS[i]}"><title>{column[j]:.3g}</title></rect>'
            )
    parts.append(f'<text x="{left + 4}" y="{MARGIN + 4}">{top:.3g}</text>')
    base = HEIGHT - MARGIN
    parts.append(f'<path d="M{left + MARGIN} {base}h{inside}" stroke="black"/>')
    return parts
