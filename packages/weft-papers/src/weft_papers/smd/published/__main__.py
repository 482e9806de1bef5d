"""SMD against three others over three loads: `python -m weft_papers.smd.published`.

Jobs are drawn as the built-in workload `servers`; nodes are those of the public Optimus scheduler,
2 GPUs and 16 cores each. `decisions` measures one decision over 1,000 waiting jobs instead.
"""

from __future__ import annotations

import sys
from time import process_time

import numpy as np

import weft
from weft.core.plan.policy import Policy
from weft.perf.training.learner import Learner
from weft.testing import cluster_of, view_of, with_knowledge
from weft.traces.options import DrawRequest
from weft.traces.synthetic.training import SERVERS
from weft_papers.optimus.policy import Optimus
from weft_papers.smd.policy import Smd
from weft_papers.smd.published.baselines import FIFO, RATIO

CLUSTER = "32x2:v100"
LOADS = (1.0, 2.0, 4.0)
JOBS = 300
SEEDS = (0, 1, 2)
POLICIES: dict[str, Policy] = {
    "smd": Smd(),
    "optimus, 60 s": Optimus(interval=60.0),
    "optimus, 600 s": Optimus(),
    "ratio 1:1": RATIO,
    "fifo": FIFO,
}
METRICS = ("total_utility", "admitted_fraction", "avg_jct_h", "restarts_per_job")


def main() -> int:
    """Print the table, or the time of a decision."""
    if sys.argv[1:] == ["decisions"]:
        return decisions()
    print(f"{'load':>5} {'policy':<15} {'utility':>8} {'in time':>8} {'JCT h':>7} {'restarts':>8}")
    table: dict[str, list[tuple[float, ...]]] = {name: [] for name in POLICIES}
    for load in LOADS:
        for name, policy in POLICIES.items():
            result = weft.compare("servers", [policy], CLUSTER, jobs=JOBS, load=load, seeds=SEEDS)
            row = tuple(result.mean(policy.about.name, metric) for metric in METRICS)
            table[name].append(row)
            print(
                f"{load:>5} {name:<15} {row[0]:>8.0f} {row[1]:>8.3f} {row[2]:>7.3f} {row[3]:>8.2f}"
            )
    best_of_fixed = max(table["fifo"][-1][0], table["ratio 1:1"][-1][0])
    return int(table["smd"][-1][0] <= best_of_fixed)


def decisions() -> int:
    """CPU seconds of one decision: 1,000 waiting jobs, GPUs, cores, memory and links."""
    cluster = cluster_of("128x4:v100")
    trace = SERVERS.generate(DrawRequest(jobs=1000, gpus=cluster.gpus, load=1.0))
    training = Learner(cluster)
    took = []
    for _ in range(5):
        view = with_knowledge(
            view_of(cluster, *(job for job, _ in trace), now=trace.jobs[-1][0].submitted),
            training=training,
        )
        began = process_time()
        plan = Smd().decide(view)
        took.append(process_time() - began)
    print(f"1,000 waiting jobs, 512 GPUs, 4 resources: {np.median(took):.2f} CPU s (median of 5,")
    print(f"largest {max(took):.2f}), {len(plan.changes)} admitted")
    return int(np.median(took) > 1.0)


if __name__ == "__main__":
    sys.exit(main())
