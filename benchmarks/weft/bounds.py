"""How far policies are from what no schedule can beat, on Sia's workloads."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.weft.cases import LIVE, MEASURED, OURS, SIA, UNTUNED, Case
from benchmarks.weft.runs import Runs
from weft.app.simulate.bound import BoundedWorld, bound_world
from weft.app.simulate.setup import Setup
from weft.app.simulate.world import world_of
from weft.core.model.cluster import parse_cluster
from weft.core.spec.registry import build
from weft.traces.read import load

COLUMNS = {"sia": (SIA, "restart"), "weft": (OURS, "restart"), "weft, live": (OURS, MEASURED)}


def run(data: Path, runs: Runs, *, cached: bool, quick: bool) -> int:
    """Print average completion times over the bound, file by file, and what is left of `sia`'s."""
    print(f"| file | alone | bound | {' | '.join(COLUMNS)} | bound over sia |")
    print("|---|--:|--:|" + "--:|" * (len(COLUMNS) + 1))
    left: list[float] = []
    for file in UNTUNED[:2] if quick else UNTUNED:
        hours = bounds_of(data, Case(file, SIA))
        least, cells = hours["avg_jct_h"], []
        for policy, resize in COLUMNS.values():
            case = Case(file, policy, resize=resize)
            known = (not cached or runs.has(case)) and (resize == "restart" or file in LIVE)
            took = runs.get(case)["avg_jct_h"] if known else 0.0
            cells.append(f"{took / least:.3f}" if known else "")
            if known and policy == SIA:
                left.append(least / took)
        shown = f"{left[-1]:.3f}" if cells[0] else ""
        alone = f"{hours['alone_jct_h']:.3f} h"
        print(f"| {file} | {alone} | {least:.3f} h | {' | '.join(cells)} | {shown} |", flush=True)
    if left:
        print(f"\nthe bound is {statistics.geometric_mean(left):.3f} of sia on {len(left)} files")
    return 0


def bounds_of(data: Path, case: Case) -> dict[str, float]:
    """The bounds of a file, with published first starts."""
    cluster, policy = parse_cluster(case.cluster), build("policy", case.policy)
    trace = load(data / "workloads" / f"{case.file}.csv")
    setup = Setup(trace, policy, profiles=str(data / "profiles"))
    return bound_world(BoundedWorld(world_of(setup, trace, cluster, policy.about), cluster))
