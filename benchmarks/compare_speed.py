"""A comparison of eight policies by seeds, in one process and in two: CPU and wall seconds.

    python -m benchmarks.compare_speed [--seeds 10] [--jobs 1500]

On a machine with two idle cores wall tells how much faster two are. On a busy one CPU does: both
do half of the runs, so two are at best `2 x one / two` times faster. How long the second process
waits between two runs, and before its first, is told as well.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from weft.app.simulate.run import run_all, run_one
from weft.app.simulate.setup import Setup
from weft.sim.result import Outcome

POLICIES = ("fifo", "fifo:backfill=true", "sjf", "srtf", "srsf", "las", "tiresias", "gittins")


@dataclass(frozen=True)
class TimedRun:
    """Runs a setup, and writes down when, in a file of each process."""

    folder: Path

    def __call__(self, setup: Setup, report: Callable[[float], None] | None = None) -> Outcome:
        """The outcome of a run."""
        began = time.monotonic()
        outcome = run_one(setup, report)
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(f"{began} {time.monotonic()}\n")
        return outcome


def measure(setups: list[Setup], processes: int) -> tuple[float, float, float, float]:
    """CPU seconds with those of all processes, wall seconds, and those of waiting.

    Of the second process: before its first run, and between runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        before, began = os.times(), time.monotonic()
        run_all(setups, processes=processes, run=TimedRun(Path(folder)))
        after, took = os.times(), time.monotonic() - began
        first = between = 0.0
        for path in Path(folder).iterdir():
            if path.name != str(os.getpid()):
                runs = [
                    [float(at) for at in line.split()] for line in path.read_text().splitlines()
                ]
                first += runs[0][0] - began
                between += sum(start - end for (_, end), (start, _) in pairwise(runs))
    return sum(after[:4]) - sum(before[:4]), took, first, between


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
    single, one_wall, *_ = measure(setups, 1)
    two, two_wall, first, between = measure(setups, 2)
    print(f"{len(setups)} runs: one process {single:.1f} CPU s, {one_wall:.1f} s;")
    print(f"  two {two:.1f} CPU s, {two_wall:.1f} s")
    print(f"  the second began after {first:.2f} s, and waited {between:.2f} s between its runs")
    print(f"  {one_wall / two_wall:.2f}x as fast by wall, {2 * single / two:.2f}x by CPU")


if __name__ == "__main__":
    main()
