"""Which order, size and place go best together, on Sia's Philly workload.

    python -m benchmarks.grid [--quick] [--report FILE]

Four orders, three sizes and three places: 36 compositions on the authors' 160 jobs and 64 GPUs of
three kinds, beside the published policies. Jobs restart at what it costs them, moves included.
Where sizes are chosen, the order matters only while more jobs are there than their least sizes fit.
`--quick` takes the jobs of the first two hours. The heat map goes to docs/images/grid.svg, and with
`--report` into a page.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import weft
from benchmarks.data import need
from benchmarks.heat_map import draw_grid
from weft.report.html import write_report
from weft.traces.options import Options

ORDERS = ("fifo", "las", "srtf", "ftf")
SIZES = ("asked", "optimus:interval=60", "sia")
PLACES = ("packed", "spread", "whole-nodes")
PUBLISHED = (
    "sia",
    "optimus",
    "tiresias",
    "themis",
    "gavel:objective=max-sum-throughput",
    "srtf",
    "pollux:generations=10,population=20",
)
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "grid.svg"


def spell(order: str, size: str, place: str) -> str:
    """The composition of three parts."""
    return f"compose:order={order},size={size},place={place},admit=preempt"


def main() -> int:
    """Run all, print each as it ends, and draw the grid."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the jobs of the first two hours")
    parser.add_argument("--report", type=Path, help="write the comparison as a page")
    chosen = parser.parse_args()
    data = need("sia/workloads/philly", "sia/profiles")
    cells = {spell(o, s, p): (o, s, p) for o in ORDERS for s in SIZES for p in PLACES}
    began, jct, outcomes = time.process_time(), {}, {}
    for policy in [*PUBLISHED, *cells]:
        result = weft.simulate(
            str(data / "sia" / "workloads" / "philly" / "workload-1.csv"),
            policy,
            "sia-hetero",
            profiles=str(data / "sia" / "profiles"),
            options=Options(window=(0.0, 7200.0) if chosen.quick else None),
        )
        outcomes.update(result.outcomes)
        jct[policy] = result.mean(policy, "avg_jct_h")
        p99, restarts = result.mean(policy, "p99_jct_h"), result.mean(policy, "restarts_per_job")
        print(f"{jct[policy]:7.3f} h  p99 {p99:7.2f} h  restarts {restarts:6.2f}  {policy}")
    best = min(cells, key=lambda cell: jct[cell])
    known = min(PUBLISHED, key=lambda policy: jct[policy])
    ratio = jct[best] / jct[known]
    print(f"best composition: {best}")
    print(f"{ratio:.3f} of the best published one's completion time ({known})")
    print(f"{time.process_time() - began:.0f} CPU s")
    if not chosen.quick:
        named = {cell: jct[policy] for policy, cell in cells.items()}
        PICTURE.write_text(draw_grid(named, {published: jct[published] for published in PUBLISHED}))
        print(f"wrote {PICTURE.name}")
    if chosen.report is not None:
        write_report(
            replace(result, outcomes=outcomes), chosen.report, title="orders, sizes and places"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
