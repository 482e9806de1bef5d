"""Lucid on the surrogate of its Venus trace: `python -m weft_papers.lucid.published`.

Two virtual clusters of 8-GPU nodes, each simulated by itself; speeds of pairs are the authors'
measurements, lengths are told to every policy by noisy predictions. The table and the pairs are
public for non-commercial research; nothing of them is kept here.

The authors' corner is 2 of 135 nodes and costs their simulator no time; here a corner of one
node is a sixth and a tenth of the machines. So there are two comparisons: `authors/lucid:corner=0`
has the metrics for nothing, as theirs nearly has; plain `lucid` pays for them.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.data import need

from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.scheduler import Scheduler
from weft.core.spec.registry import build
from weft.core.state.cells import Floats
from weft.perf.linear import LinearBeliefs
from weft.perf.replay import Replay
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.device_models import DevicePairs, read_pairs, tag_of
from weft.perf.sharing.hinted_profile import profile_of
from weft.sim.driver import Simulation
from weft.sim.physics import Physics
from weft_papers.published import build_named

# Nodes of each virtual cluster in the surrogate.
CLUSTERS = {"vc8Gr": "6x8:rtx3090", "vcefl": "10x8:rtx3090"}
RESTART_S = 30.0
FREE = "authors/lucid:corner=0"
# Policy, and which prediction it is told; QSSF is shortest service first with its own predictor.
RUNS = (
    ("fifo", "pred_ebm"),
    ("sjf", "pred_ebm"),
    ("srsf", "pred_lgb"),
    ("tiresias", "pred_ebm"),
    ("authors/lucid:corner=0,packing=off", "pred_ebm"),
    (FREE, "pred_ebm"),
    ("authors/lucid", "pred_ebm"),
    ("lucid", "pred_ebm"),
)


@dataclass(frozen=True, slots=True)
class PackedTimes:
    """Hours from submission to end and to the first start, of every job of all clusters."""

    completion: Floats
    queueing: Floats


def main() -> int:
    """Print mean completion and queueing times of every policy."""
    data = need("lucid/surrogate_trace.csv", "lucid/colocate_info.csv")
    rows = read(data / "lucid" / "surrogate_trace.csv")
    pairs = read_pairs(data / "lucid" / "colocate_info.csv")
    print(f"{'policy':<42} {'told by':<9} {'mean JCT h':>10} {'p99 h':>8} {'mean wait h':>11}")
    means = {}
    for policy, column in RUNS:
        times = simulate(rows, policy, column, pairs)
        means[policy] = float(times.completion.mean())
        print(
            f"{policy:<42} {column:<9} {means[policy]:>10.3f} "
            f"{np.quantile(times.completion, 0.99):>8.2f} {times.queueing.mean():>11.3f}"
        )
    rivals = min(means["fifo"], means["tiresias"])
    for ours in (FREE, "lucid"):
        print(f"tiresias / {ours} {means['tiresias'] / means[ours]:.2f}")
    return 0 if max(means[FREE], means["lucid"]) < rivals else 1


def read(path: Path) -> list[dict[str, str]]:
    """The rows of the surrogate."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def trace_of(rows: list[dict[str, str]], cluster: str, column: str) -> Trace:
    """The jobs of one virtual cluster, with what was measured and what was predicted of them."""
    jobs = []
    for row in rows:
        if row["vc"] != cluster:
            continue
        predicted = float(row[column])
        hints = {
            # A negative prediction is taken as a thousand seconds, as the authors do.
            "duration_s": predicted if predicted > 0 else 1000.0,
            "gpu_util": float(row["gpu_util"]),
            "gmem_util": float(row["gmem_util"]),
            "gmem_mib": float(row["gmem"]),
        }
        job = Job(
            JobId(row["job_id"]),
            float(row["submit_offset_s"]),
            Demand(int(row["gpu_num"])),
            tenant=cluster,
            user=row["user"],
            model=tag_of(row["model"], row["dataset"], row["batchsize"], row["amp"]),
            hints=hints,
        )
        jobs.append((job, Truth(float(row["duration"]))))
    jobs.sort(key=lambda pair: pair[0].submitted)
    return Trace(f"surrogate {cluster}", tuple(jobs))


def simulate(
    rows: list[dict[str, str]], policy: str, column: str, pairs: DevicePairs
) -> PackedTimes:
    """Both virtual clusters under a policy."""
    completion, queueing = [], []
    for cluster, text in CLUSTERS.items():
        trace, machines = trace_of(rows, cluster, column), parse_cluster(text)
        together = Colocated(profile_of, pairs)
        physics = Physics(trace, Replay(RESTART_S), coupling=together)
        scheduler = Scheduler(
            build_named(policy),
            machines,
            knowledge=Knowledge(build("predictor", "hinted"), LinearBeliefs(), together),
        )
        Simulation(scheduler, physics, machines).run()
        submitted = np.array([job.submitted for job, _ in trace])
        completion.append(physics.ended_at - submitted)
        queueing.append(completion[-1] - physics.ran_s)
    return PackedTimes(np.concatenate(completion) / 3600, np.concatenate(queueing) / 3600)


if __name__ == "__main__":
    sys.exit(main())
