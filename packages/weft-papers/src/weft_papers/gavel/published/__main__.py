"""Gavel's published traces, ours beside theirs: `python -m weft_papers.gavel.published`.

8 V100, 16 P100 and 24 K80 as on the authors' cluster, their physical throughput table, restarts
free as in their simulator.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
from benchmarks.data import need

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.scheduler import Scheduler
from weft.perf.throughputs import ThroughputBeliefs, Throughputs, read_throughputs
from weft.predict.none import NoPredictor
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft.traces.read import find
from weft_papers.published import build_named

CLUSTER = "2x4:v100+4x4:p100+6x4:k80"
EXPECTED = Path(__file__).parent / "expected.toml"


def main() -> int:
    """Run every line of `expected.toml`; fail where one is too far from theirs."""
    data = need("gavel/physical_cluster_throughputs.json", "gavel/minimize_makespan.trace")
    table = read_throughputs(data / "gavel" / "physical_cluster_throughputs.json")
    wrong = 0
    print(f"{'trace':<24} {'policy':<40} {'metric':<11} {'theirs':>7} {'ours':>7} {'differ':>7}")
    for run in tomllib.loads(EXPECTED.read_text())["run"]:
        ours = simulate(data / "gavel" / run["trace"], run["policy"], table)[run["metric"]]
        theirs = run.get("theirs")
        line = f"{run['trace']:<24} {run['policy']:<40} {run['metric']:<11}"
        if theirs is None:
            print(f"{line} {'-':>7} {ours:>7.3f}")
            continue
        outside = abs(ours / theirs - 1.0) > run["within"]
        wrong += outside
        verdict = "  OUTSIDE" if outside else ""
        print(f"{line} {theirs:>7.3f} {ours:>7.3f} {ours / theirs - 1.0:>+7.1%}{verdict}")
    return 1 if wrong else 0


def simulate(trace: Path, policy: str, table: Throughputs, seed: int = 0) -> dict[str, float]:
    """Mean completion time and makespan of a run, in hours."""
    jobs, cluster = find(str(trace)), parse_cluster(CLUSTER)
    physics = Physics(jobs, table)
    scheduler = Scheduler(
        build_named(policy),
        cluster,
        knowledge=Knowledge(NoPredictor(), ThroughputBeliefs(table)),
        seed=seed,
    )
    Simulation(scheduler, physics, cluster, seed=seed).run()
    submitted = np.array([job.submitted for job, _ in jobs])
    hours = (physics.ended_at - submitted) / 3600
    return {
        "avg_jct_h": float(hours.mean()),
        "makespan_h": float(physics.ended_at.max() - submitted.min()) / 3600,
    }


if __name__ == "__main__":
    sys.exit(main())
