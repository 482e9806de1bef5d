"""Average completion time against the worst finish-time fairness, by the bound of `fair`.

`python -m benchmarks.fairness_frontier` runs each policy bare and with bounds down to 1.2, prints
the numbers and writes docs/images/fairness_frontier.svg.
"""

from __future__ import annotations

from math import log10
from pathlib import Path

import weft
from weft.sim.result import Result

BOUNDS = (None, 5.0, 3.0, 2.0, 1.5, 1.2)
# Policy, workload, cluster, jobs, load.
CASES = (
    ("tiresias", "philly", "4x8:v100", 300, 1.0),
    ("srtf", "philly", "4x8:v100", 300, 1.0),
    ("sia", "philly", "4x4:t4+2x8:a100", 60, 1.0),
)
SEED = 2
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "fairness_frontier.svg"
COLOURS = {"tiresias": "#0072B2", "srtf": "#D55E00", "sia": "#009E73"}
WIDTH, HEIGHT, MARGIN = 640, 360, 56
Points = dict[str, list[tuple[float | None, float, float]]]


def main() -> None:
    """Print and draw the frontier of every policy."""
    points: Points = {}
    for policy, workload, cluster, jobs, load in CASES:
        specs = {bound: _spec(policy, bound) for bound in BOUNDS}
        result = weft.compare(
            workload, list(specs.values()), cluster, seeds=(SEED,), jobs=jobs, load=load
        )
        points[policy] = [_point(result, bound, spec) for bound, spec in specs.items()]
        base = points[policy][0][1]
        for bound, jct, worst in points[policy]:
            name = "none" if bound is None else f"{bound:g}"
            print(f"{policy:9} bound {name:>4}  avg JCT {jct:7.3f} h ({jct / base:.3f})  ", end="")
            print(f"worst FTF {worst:8.2f}")
    PICTURE.write_text(draw(points))
    print(f"wrote {PICTURE.name}")


def _spec(policy: str, bound: float | None) -> str:
    return policy if bound is None else f"fair:bound={bound:g}|{policy}"


def _point(result: Result, bound: float | None, spec: str) -> tuple[float | None, float, float]:
    return bound, result.mean(spec, "avg_jct_h"), result.mean(spec, "worst_ftf")


def draw(by_policy: Points) -> str:
    """A self-contained SVG: worst fairness to the right, completion time over the bare one's up."""
    ratios = [jct / points[0][1] for points in by_policy.values() for _, jct, _ in points]
    low, high = min(*ratios, 0.9), max(*ratios, 1.1)
    most = log10(max(worst for points in by_policy.values() for _, _, worst in points)) * 1.05

    def x(worst: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * max(log10(worst), 0.0) / most

    def y(ratio: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (ratio - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{MARGIN}" y="20" font-weight="bold">average completion time, over that without '
        "a bound</text>",
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}">worst finish-time fairness of a job</text>',
    ]
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if log10(tick) <= most]
    parts += [f'<text x="{x(tick):.1f}" y="{HEIGHT - 32}">{tick}</text>' for tick in ticks]
    for step in range(5):
        ratio = low + (high - low) * step / 4
        parts.append(f'<text x="12" y="{y(ratio) + 4:.1f}">{ratio:.2f}</text>')
        parts.append(
            f'<line x1="{MARGIN}" x2="{WIDTH - 20}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" '
            'stroke="#ddd"/>'
        )
    for i, (policy, points) in enumerate(by_policy.items()):
        colour, base = COLOURS[policy], points[0][1]
        at = [(x(worst), y(jct / base)) for _, jct, worst in points]
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in at)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        for (left, top), (bound, _, _) in zip(at, points, strict=True):
            name = "none" if bound is None else f"{bound:g}"
            parts.append(f'<circle cx="{left:.1f}" cy="{top:.1f}" r="3.5" fill="{colour}"/>')
            parts.append(
                f'<text x="{left + 5:.1f}" y="{top - 5:.1f}" fill="{colour}">{name}</text>'
            )
        parts.append(f'<text x="{WIDTH - 80}" y="{40 + 16 * i}" fill="{colour}">{policy}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    main()
