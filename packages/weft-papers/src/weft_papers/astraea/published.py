"""Tenants of Philly under Astraea: `python -m weft_papers.astraea.published [--quick]`.

A sample of two weeks of the Philly trace, so that minutes suffice, on as many GPUs as its work
keeps busy; virtual clusters are the tenants, weighted by their nodes. LTGF, long-term
GPU-time fairness, is GPU time used over GPU time deserved: the smaller of a tenant's demand and its
quota, over time. A tenant at 1 had what its quota promised; below it, others had it. The paper
says that tenants were up to 9.42 times better off than under others, without a longer average
completion time; how it counts that is not in its abstract, so the worst tenant's loss is printed.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from benchmarks.data import need

import weft
from weft.core.model.trace import Trace
from weft.core.state.cells import Floats
from weft.formulas.fairness.shares import JobTimes, jain_index, quotas_of, tenant_ratios
from weft.sim.result import Outcome
from weft.traces.options import Options
from weft.traces.read import load

DAY = 86_400.0
LOSS_BELOW = 0.95
QUOTAS = "traces/philly/philly_vc_nodes.csv"
SUBSET = "traces/normalized/philly_subset.csv.gz"
LONGEST_S = 2 * DAY  # one job that runs for a month would be all there is to see
WINDOW = (40 * DAY, 54 * DAY)  # from 2017-10-14 on, when the log is complete
JOBS, QUICK = 1500, 500
NODES, QUICK_NODES = 3, 1  # of 8 GPUs: the work of the jobs is about what they can do in two weeks
POLICIES = {
    "astraea": "astraea",
    "tiresias": "tiresias",
    # Turns of ten minutes instead of one, for the sake of this machine: shares are the same.
    "gandiva_fair": "gandiva_fair:quantum=600",
}


def main(words: list[str]) -> int:
    """Print the fairness of tenants under each policy; fail unless Astraea's worst is best."""
    folder = need(QUOTAS, SUBSET)
    weights = read_weights(folder / QUOTAS)
    count, nodes = (QUICK, QUICK_NODES) if "--quick" in words else (JOBS, NODES)
    options = Options(
        window=WINDOW,
        rebase=True,
        max_gpus=8,
        clip_duration=LONGEST_S,
        sample=count,
        tenants=tuple(weights),
    )
    trace = load(folder / SUBSET, options)
    cluster = f"{nodes}x8:v100"
    load_ = trace.load(8 * nodes)
    print(f"{len(trace)} jobs of {len(weights)} tenants on {cluster}, load {load_:.2f}", flush=True)
    least: dict[str, float] = {}
    for name, policy in POLICIES.items():
        result = weft.simulate(trace, policy, cluster, weights=weights)
        least[name] = report(name, trace, result.outcomes[policy][0], weights, 8 * nodes)
    loss = {name: 1.0 / value for name, value in least.items()}
    ratios = ", ".join(f"{loss[n] / loss['astraea']:.2f} than {n}" for n in loss if n != "astraea")
    print(f"the worst tenant is better served by {ratios}; the paper: up to 9.42")
    return 0 if least["astraea"] >= max(least.values()) else 1


def read_weights(path: Path) -> dict[str, float]:
    """Nodes of each virtual cluster."""
    with path.open() as lines:
        return {row["vc"]: float(row["node num"]) for row in csv.DictReader(lines)}


def report(
    name: str, trace: Trace, outcome: Outcome, weights: dict[str, float], gpus: int
) -> float:
    """Print a line; the least LTGF of a tenant."""
    ltgf = tenant_fairness(trace, outcome, weights, gpus)
    metrics = outcome.metrics
    print(
        f"{name:13} tenants' LTGF least {ltgf.min():.3f}, mean {ltgf.mean():.3f}, "
        f"below 0.95 {int((ltgf < LOSS_BELOW).sum())} of {len(ltgf)}, Jain {jain_index(ltgf):.3f}; "
        f"avg JCT {metrics['avg_jct_h']:.2f} h",
        flush=True,
    )
    return float(ltgf.min())


def tenant_fairness(trace: Trace, outcome: Outcome, weights: dict[str, float], gpus: int) -> Floats:
    """LTGF of every tenant; GPU time that restarts took is not counted as used."""
    jobs = [job for job, _ in trace]
    tenants = [job.tenant for job in jobs]
    need = np.array([float(job.demand.gpus) for job in jobs])
    work = need * np.array([truth.length for _, truth in trace])
    times = outcome.per_job.submit_s, outcome.per_job.end_s
    lengths = JobTimes(tenants, *times, need, work)
    ratios = tenant_ratios(lengths, quotas_of(tenants, gpus, weights))
    return np.array(list(ratios.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
