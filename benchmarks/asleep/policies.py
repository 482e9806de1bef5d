"""What the ladder of stops is worth to preemptive policies, by simulation.

    python -m benchmarks.asleep.policies --jobs 300 [--sia FOLDER/workload.csv --profiles FOLDER]

The same workload with every stop a restart, with freezing, with suspending and with both; average
completion time as a part of the first, and in brackets restarts per job. Jobs hold a part of each
GPU's memory that is drawn by their names, 37 % on average (`weft.sim.asleep`): what does not fit is
stopped as before.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import NamedTuple

from weft.app.simulate.run import run_one
from weft.app.simulate.setup import Setup

POLICIES = ("las", "srtf", "tiresias", "gandiva", "sia")
CLUSTERS = {"philly": "4x8:v100", "earth": "4x8:v100"}  # earth is one of Helios's four
SIA = "6x4:t4+3x4:rtx+2x8:a100"
STOPS = ("", "freeze", "suspend", "freeze,suspend")


class Run(NamedTuple):
    """Average completion time in hours, and restarts of a job on average."""

    jct_h: float
    restarts: float


def measure(setup: Setup) -> Run:
    """One simulation."""
    metrics = run_one(setup).metrics
    return Run(metrics["avg_jct_h"], metrics["restarts_per_job"])


def show(name: str, setup: Setup) -> None:
    """One table: a row per policy."""
    lines = [f"| {name} | restart | freeze | suspend | both |", "|---|--:|--:|--:|--:|"]
    for policy in POLICIES:
        times = [measure(replace(setup, policy=policy, stops=stops)) for stops in STOPS]
        first = times[0].jct_h
        parts = " | ".join(f"{time.jct_h / first:.3f} ({time.restarts:.2f})" for time in times)
        lines.append(f"| {policy} ({first:.2f} h) | {parts} |")
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.flush()


def main() -> int:
    """Print one table for each workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--sia", default="", help="a workload of Sia's artifact, as CSV")
    parser.add_argument("--profiles", default="", help="the folder of its profiles")
    asked = parser.parse_args()
    for name, cluster in CLUSTERS.items():
        show(name, Setup(name, "", cluster, seed=1, jobs=asked.jobs, load=1.0))
    if asked.sia:
        show("sia", Setup(asked.sia, "", SIA, seed=1, profiles=asked.profiles))
    return 0


if __name__ == "__main__":
    sys.exit(main())
