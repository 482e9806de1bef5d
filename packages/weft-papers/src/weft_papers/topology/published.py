"""Topology-aware scheduling on its authors' job list: `python -m weft_papers.topology.published`.

The 1,000 jobs of `workload_1000.csv` on POWER8 machines with 4 GPUs, in two sizes of cluster. A job
takes its time alone for the sockets it got, by the published table, and is slowed by each job on
its sockets as far as pairs were measured. Printed are completion times; how much longer jobs ran
than alone on one socket, on average, for the slowest twentieth and at worst; how many ran more than
5 % longer; and the speed-up over the first GPUs of the first machine (fcfs) in the slowest
twentieth, beside the paper's 1.30. Most jobs of the list hardly communicate.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import process_time

import numpy as np
from benchmarks.data import need
from numpy.typing import NDArray

import weft
from weft.core.model.cluster import parse_cluster
from weft.core.model.trace import Trace
from weft.perf.links.joined import read_bus
from weft.sim.result import Outcome
from weft.traces.read import load

PLACES = ("fcfs", "best-fit", "topology", "postpone")
MACHINES = (75, 150)
PAPER = 1.30
LONGER = 1.05  # a job whose time grew by more is counted as disturbed


def main() -> int:
    """Print every rule on both clusters; fail if the topology does not pay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first 300 jobs alone")
    quick = parser.parse_args().quick
    data = need("topology_aware")
    folder = data / "topology_aware"
    bus = read_bus(folder)
    trace = load(folder / "workload_1000.csv")
    if quick:
        trace = Trace(trace.name, trace.jobs[:300])
    kept = len(bus.speeds)
    print(
        f"{len(trace)} jobs; {kept} measured pairs, {bus.refused} refused: see perf/links/joined.py"
    )
    gains = [show(trace, folder, machines // (3 if quick else 1)) for machines in MACHINES]
    print(f"paper: up to {PAPER:.2f} over its baselines. {process_time():.0f} s of CPU time")
    return 0 if max(gains) > 1.0 else 1


def show(trace: Trace, folder: Path, machines: int) -> float:
    """Print one table; return the speed-up over fcfs in the slowest twentieth."""
    cluster = f"{machines}x4:p100@power8"
    load_ = trace.load(parse_cluster(cluster).gpus)
    print(f"\n{machines} machines, load {load_:.2f}")
    print(
        f"{'place':<10}{'JCT':>9}{'p95 JCT':>9}{'ran':>8}{'p95':>7}{'worst':>7}"
        f"{'disturbed':>11}{'makespan':>10}{'speed-up':>10}"
    )
    slowest: dict[str, float] = {}
    for place in PLACES:
        policy = f"topology:place={place}"
        outcome = weft.simulate(trace, policy, cluster, profiles=str(folder)).outcomes[policy][0]
        longer = stretch(trace, outcome)
        slowest[place] = float(np.percentile(longer, 95))
        jct = np.subtract(outcome.per_job.end_s, [job.submitted for job, _ in trace])
        print(
            f"{place:<10}{np.mean(jct):>8.0f}s{np.percentile(jct, 95):>8.0f}s"
            f"{np.mean(longer):>8.3f}{slowest[place]:>7.2f}{max(longer):>7.2f}"
            f"{np.mean(longer > LONGER):>11.1%}"
            f"{3600 * outcome.metrics['makespan_h']:>9.0f}s"
            f"{slowest['fcfs'] / slowest[place]:>10.2f}"
        )
    return slowest["fcfs"] / slowest["topology"]


def stretch(trace: Trace, outcome: Outcome) -> NDArray[np.float64]:
    """Return how many times as long as alone on one socket each job ran."""
    jobs = outcome.per_job
    took = dict(zip(jobs.id, np.subtract(jobs.end_s, jobs.start_s), strict=True))
    return np.array([took[job.id] / truth.length for job, truth in trace])


if __name__ == "__main__":
    sys.exit(main())
