"""Critical-difference plots: mean ranks, and which of them may be chance."""

from __future__ import annotations

from benchmarks.league.ranks import Standing

WIDTH, ROW, LEFT, RIGHT, TOP = 480, 19, 150, 20, 62
GOOD, OTHER, LINE = "#0072B2", "#666", "#ccc"


def draw(title: str, of: Standing) -> str:
    """A self-contained SVG: a row per policy with half a critical difference to either side.

    Two policies differ if their bars do not overlap. The band is the bar of the first.
    """
    count, half = len(of.ranks), of.difference / 2.0
    height = TOP + ROW * count + 16
    best = min(of.ranks.values(), default=1.0)

    def x(rank: float) -> float:
        inside = min(max(rank, 1.0), float(count))
        return LEFT + (WIDTH - LEFT - RIGHT) * (inside - 1.0) / max(count - 1, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">{title}</text>',
        f'<text x="10" y="38" fill="{OTHER}" font-size="12">mean rank over {of.traces} traces; '
        f"critical difference {of.difference:.1f}</text>",
        f'<rect x="{x(best - half):.1f}" y="{TOP - 6}" '
        f'width="{x(best + half) - x(best - half):.1f}" height="{ROW * count + 6}" '
        f'fill="{GOOD}" opacity="0.1"/>',
    ]
    parts += [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 6}" y2="{height - 16}" '
        f'stroke="{LINE}"/><text x="{x(tick):.1f}" y="{TOP - 10}" text-anchor="middle" '
        f'font-size="11" fill="{OTHER}">{tick}</text>'
        for tick in range(1, count + 1, 5)
    ]
    for row, (name, rank) in enumerate(of.ranks.items()):
        y = TOP + ROW * row + ROW / 2
        colour = GOOD if rank - best <= of.difference else OTHER
        weight = ' font-weight="bold"' if name.startswith("weft") else ""
        parts.append(
            f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end"{weight}>{name}</text>'
            f'<line x1="{x(rank - half):.1f}" x2="{x(rank + half):.1f}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="{colour}" stroke-width="2"/>'
            f'<circle cx="{x(rank):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}">'
            f"<title>{name}: {rank:.2f}</title></circle>"
        )
    return "\n".join([*parts, "</svg>\n"])
