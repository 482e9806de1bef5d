"""A comparison of eight policies by seeds, in one process and in two: CPU and wall seconds.

    python -m benchmarks.compare_speed [--seeds 10] [--jobs 1500]

On a machine with two idle cores wall tells how much faster two are. On a busy one CPU does: both
do half of the runs, so two are at best `2 x one / two` times faster.
"""

from __future__ import annotations

import argparse
import os
import time

from weft.app.simulate.run import run_all
from weft.app.simulate.setup import Setup

POLICIES = ("fifo", "fifo:backfill=true", "sjf", "srtf", "srsf", "las", "tiresias", "gittins")


def measure(setups: list[Setup], processes: int) -> tuple[float, float]:
    """CPU seconds with those of all processes, and wall seconds."""
    before, began = os.times(), time.monotonic()
    run_all(setups, processes=processes)
    after, took = os.times(), time.monotonic() - began
    return sum(after[:4]) - sum(before[:4]), took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1_500)
    asked = parser.parse_args()
    setups = [
        Setup("philly", policy, "16x8:v100", jobs=asked.jobs, seed=seed)
        for policy in POLICIES
        for seed in range(asked.seeds)
    ]
    run_all(setups[:1])  # what is loaded late is loaded
    (one, one_wall), (two, two_wall) = measure(setups, 1), measure(setups, 2)
    print(f"{len(setups)} runs: one process {one:.1f} CPU s, {one_wall:.1f} s;")
    print(f"  two {two:.1f} CPU s, {two_wall:.1f} s")
    print(f"  {one_wall / two_wall:.2f}x as fast by wall, {2 * one / two:.2f}x by CPU")


if __name__ == "__main__":
    main()
