"""Themis on a workload of apps: `python -m benchmarks.papers.themis`.

Apps are hyper-parameter searches of one to twelve jobs that belong together, on 64 GPUs. The
fairness of an app is its completion time, from its first submission to the end of its last
job, over that alone on an equal part of the cluster: all its work on the GPUs over the apps that
were there on average, and no less than its longest job. The paper has the largest of any app more
than 2.25 times better than under Tiresias, Gandiva and SLAQ.
"""

from __future__ import annotations

import sys

import numpy as np

import weft
from weft.core.model import Demand, Job, JobId
from weft.core.trace import Trace, Truth
from weft.formulas.statistics import contention_seen
from weft.sim.result import Outcome

CLUSTER, GPUS = "8x8:v100", 64
APPS, GAP_S = 60, 1250.0
OTHERS = ("tiresias", "gandiva", "slaq")
PROMISED = 2.0


def main() -> int:
    """Print the fairness of apps under every policy; fail if Themis is not twice as fair."""
    trace = draw(0)
    worst: dict[str, float] = {}
    for policy in ("themis", *OTHERS):
        outcome = weft.simulate(trace, policy, CLUSTER).outcomes[policy][0]
        rho = app_fairness(trace, outcome)
        worst[policy] = float(rho.max())
        jain = float(rho.sum() ** 2 / (len(rho) * (rho**2).sum()))
        print(
            f"{policy:9} max rho {rho.max():7.2f}  mean {rho.mean():5.2f}  Jain {jain:.3f}  "
            f"avg JCT {outcome.metrics['avg_jct_h']:.2f} h",
            flush=True,
        )
    gains = {name: worst[name] / worst["themis"] for name in OTHERS}
    print("better by " + ", ".join(f"{gain:.2f} than {name}" for name, gain in gains.items()))
    return 0 if min(gains.values()) >= PROMISED else 1


def draw(seed: int) -> Trace:
    """Apps that arrive at random, of jobs with lengths around the app's own."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(GAP_S, APPS))
    rows = []
    for app in range(APPS):
        jobs = int(rng.choice([1, 2, 4, 8, 12], p=[0.3, 0.2, 0.2, 0.2, 0.1]))
        gpus = int(rng.choice([1, 2, 4], p=[0.5, 0.3, 0.2]))
        length = float(rng.lognormal(8.3, 1.0))
        for j in range(jobs):
            seconds = length * float(rng.uniform(0.5, 1.5))
            job = Job(
                JobId(f"{app}-{j}"),
                float(at[app]),
                Demand(gpus),
                user=f"u{app % 10}",
                app=f"app-{app}",
            )
            rows.append((job, Truth(seconds)))
    return Trace("apps", tuple(rows))


def app_fairness(trace: Trace, outcome: Outcome) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Completion time of each app over that on an equal part of the cluster."""
    apps: dict[str, list[int]] = {}
    for row, (job, _) in enumerate(trace):
        apps.setdefault(job.app, []).append(row)
    begin = np.array([outcome.per_job.submit_s[rows].min() for rows in apps.values()])
    end = np.array([outcome.per_job.end_s[rows].max() for rows in apps.values()])
    part = GPUS / contention_seen(begin, end)
    alone = []
    for own, rows in zip(part.tolist(), apps.values(), strict=True):
        pairs = [trace.jobs[row] for row in rows]
        work = sum(truth.length * job.demand.gpus for job, truth in pairs)
        longest = max(t.length * max(j.demand.gpus / own, 1.0) for j, t in pairs)
        alone.append(max(work / own, longest))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = (end - begin) / np.array(alone)
    return found


if __name__ == "__main__":
    sys.exit(main())
