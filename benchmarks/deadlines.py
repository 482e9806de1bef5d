"""Promised deadlines, kept and broken: `python -m benchmarks.deadlines [--jobs 300] [--seeds 2]`.

Jobs of users who run the same kinds of work again and again, half of them with a deadline of 0.5 to
2.5 times their length, on 32 GPUs at full load. With the true lengths no promise may be broken;
with lengths learned from jobs that ended before (`alike`), at most one in ten.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time

import numpy as np

import weft
from weft.core.model.job import Demand, Job, JobId, Or
from weft.core.model.trace import Trace, Truth

POLICIES = ("fifo:backfill=true", "elasticflow", "promise|fifo:backfill=true", "promise|srtf")
LIMITS = {"oracle": 0.0, "alike": 0.1}
CLUSTER, GPUS = "4x8:v100", 32


def main() -> int:
    """Print what became of deadlines; fail where more promises are broken than may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    worst = 0.0
    print(f"{'lengths':10}{'policy':30}{'met':>8}{'declined':>10}{'broken':>8}{'of admitted':>13}")
    for predictor, limit in LIMITS.items():
        for policy in POLICIES:
            found = np.sum(
                [count(policy, predictor, args.jobs, seed) for seed in range(args.seeds)], axis=0
            )
            met, missed, declined = found.tolist()
            part = missed / max(met + missed, 1)
            worst = max(worst, part - limit if policy != POLICIES[0] else 0.0)
            total = met + missed + declined
            print(
                f"{predictor:10}{policy:30}{met / total:8.1%}{declined / total:10.1%}"
                f"{missed:8}{part:13.1%}",
                flush=True,
            )
    print(f"{process_time():.0f} s of CPU time")
    return 0 if worst <= 0.0 else 1


def count(policy: str, predictor: str, jobs: int, seed: int) -> tuple[int, int, int]:
    """Deadlines met, missed and declined."""
    trace = draw(jobs, seed)
    result = weft.simulate(trace, policy, CLUSTER, predictor=predictor, seed=seed)
    metrics = result.outcomes[policy][0].metrics
    total = sum(job.deadline is not None for job, _ in trace)
    missed, declined = int(metrics["deadlines_missed"]), int(metrics["deadlines_declined"])
    return total - missed - declined, missed, declined


def draw(jobs: int, seed: int) -> Trace:
    """Twelve kinds of work; the lengths of each differ by about a quarter."""
    rng = np.random.default_rng([seed, 29])
    kinds = [
        (float(rng.lognormal(7.6, 0.9)), int(rng.choice([1, 1, 2, 4, 8])), f"user-{i % 5}")
        for i in range(12)
    ]
    work = np.mean([length * gpus for length, gpus, _ in kinds])
    at = np.cumsum(rng.exponential(work / GPUS, jobs))
    rows = []
    for i in range(jobs):
        length, gpus, user = kinds[kind := int(rng.integers(len(kinds)))]
        length *= float(rng.lognormal(0.0, 0.25))
        due = float(at[i]) + length * float(rng.uniform(0.5, 2.5)) if rng.random() < 0.5 else None
        job = Job(
            JobId(f"j{i}"),
            float(at[i]),
            Demand(gpus, min=1, max=16) if kind % 2 else Demand(gpus),
            user=user,
            model=f"work-{kind}",
            deadline=due,
            deadline_or=Or.UNSAID if due is None else Or.DECLINE,
        )
        rows.append((job, Truth(length)))
    return Trace("deadlines", tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
