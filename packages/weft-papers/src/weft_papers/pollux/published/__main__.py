"""Pollux on the workloads of Sia, ours beside theirs: `python -m weft_papers.pollux.published`.

First the authors' setup, seed by seed; then completion times as a ratio to Sia's in the same run.
Words after the command choose workloads, for example `saturn/workload-1`.
"""

from __future__ import annotations

import statistics
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.data import need

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.plan.about import Assumes
from weft.core.scheduler import Scheduler
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.facts import MeasuredFacts
from weft.perf.goodput.tables import ModelTable, read_tables
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.traces.read import find
from weft_papers.published import build_named

EXPECTED = Path(__file__).parent / "expected.toml"


def main() -> int:
    """Run every line of `expected.toml`; fail where one is too far from theirs."""
    data = need("sia/workloads", "sia/profiles")
    sia = data / "sia"
    models = read_tables(sia / "profiles")
    expected, named = tomllib.loads(EXPECTED.read_text()), set(sys.argv[1:])
    runs = [run for run in expected["run"] if not named or named & {*run["workloads"]}]
    print(f"{'workload':<36} {'cluster':<11} {'what':<32} {'theirs':>11} {'ours':>7} {'ms':>5}")
    return 1 if sum(outside(sia, models, run) for run in runs) else 0


def outside(sia: Path, models: Mapping[str, ModelTable], run: Mapping[str, Any]) -> bool:
    """Measure one line, print it, and say whether it is out of range."""
    ours, took = [], []
    cluster, policy, blind = run["cluster"], run["policy"], run.get("blind", False)
    for workload in run["workloads"]:
        file = sia / "workloads" / f"{workload}.csv"
        other = simulate(file, cluster, run["against"], models)[0] if "against" in run else 1.0
        for seed in range(run["seeds"]):
            hours, ms = simulate(file, cluster, policy, models, seed=seed, blind=blind)
            ours.append(hours / other)
            took.append(ms)
    mean, (low, high) = statistics.fmean(ours), run["range"]
    what = policy + (f" / {run['against']}" if "against" in run else ", h")
    verdict = "" if low <= mean <= high else "  OUTSIDE"
    spread = f" ({min(ours):.2f} to {max(ours):.2f})"
    print(
        f"{', '.join(run['workloads']):<36} {cluster:<11} {what:<32} {run['theirs']:>11} "
        f"{mean:>7.3f} {statistics.fmean(took):>5.1f}{spread}{verdict}",
        flush=True,
    )
    return bool(verdict)


def simulate(
    file: Path,
    cluster: str,
    spec: str,
    models: Mapping[str, ModelTable],
    *,
    seed: int = 0,
    blind: bool = False,
) -> tuple[float, float]:
    """Mean completion time in hours, and milliseconds of a decision."""
    jobs, machines = find(str(file)), parse_cluster(cluster)
    policy = build_named(spec)
    perf = Adaptive(models, blind=blind)
    physics = Physics(jobs, perf, tick_s=policy.about.every or 60.0, free_moves=True)
    capped = policy.about.assumes is not Assumes.NOTHING
    beliefs = FittedBeliefs(MeasuredFacts(models, capped), early=blind)
    scheduler = Scheduler(policy, machines, knowledge=Knowledge(beliefs=beliefs), seed=seed)
    simulation = Simulation(scheduler, physics, machines, seed=seed)
    simulation.run()
    hours = physics.ended_at - np.array([job.submitted for job, _ in jobs])
    return float(hours.mean()) / 3600.0, statistics.fmean(simulation.counts.decide_s) * 1e3


if __name__ == "__main__":
    sys.exit(main())
