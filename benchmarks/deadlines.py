"""Promised deadlines, kept and broken: `python -m benchmarks.deadlines [--jobs 300] [--seeds 2]`.

Jobs of users who run the same kinds of work again and again, half of them with a deadline of 0.5 to
2.5 times their length, on 32 GPUs at full load. With the true lengths no promise may be broken;
with lengths learned from jobs that ended before (`alike`), at most one in ten. `--traces` plays the
traces of ElasticFlow's authors instead, with the speeds they measured and 30 s for every restart.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import weft
from benchmarks.data import need
from weft.core.model.job import Demand, Job, JobId, Or
from weft.core.model.trace import Trace, Truth
from weft_papers.elasticflow.published import most_gpus, read_speeds

POLICIES = ("fifo:backfill=true", "elasticflow", "promise|fifo:backfill=true", "promise|srtf")
LIMITS = {"oracle": 0.0, "alike": 0.1}
CLUSTER, GPUS = "4x8:v100", 32
RESTART_S = 30.0
# A trace of the authors, the kind of its speeds, and the cluster it was made for.
GIVEN = (
    ("elasticflow/trace_5_resnet_cifar.csv", "A100", "1x4:a100"),
    ("elasticflow/trace_195_t4.csv", "T4", "16x4:t4"),
    ("traces/microsoft-itp-elasticflow/elasticflow_195job.csv", "A100", "16x8:a100"),
    ("elasticflow/trace_philly_103959.csv", "A100", "32x8:a100"),
)


def main() -> int:
    """Print what became of deadlines; fail where more promises are broken than may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--traces", action="store_true", help="those of ElasticFlow's authors")
    parser.add_argument("--only", default="", help="traces with this in their name")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    args = parser.parse_args()
    print(f"{'lengths':10}{'policy':30}{'met':>8}{'declined':>10}{'broken':>8}{'of admitted':>13}")
    worst = 0.0
    if not args.traces:
        traces = [draw(args.jobs, seed) for seed in range(args.seeds)]
        worst = compare(traces, CLUSTER, args.policies)
    for path, kind, cluster in GIVEN if args.traces else ():
        if args.only in path:
            print(f"{path} on {cluster}")
            trace, speeds = read_given(need(path) / path, kind)
            with tempfile.TemporaryDirectory() as folder:
                table = Path(folder) / "speeds.csv"
                table.write_text(speeds)
                more = {"profiles": str(table), "restart_cost": RESTART_S}
                worst = max(worst, compare([trace], cluster, args.policies, more))
    print(f"{process_time():.0f} s of CPU time")
    return 0 if worst <= 0.0 else 1


def compare(
    traces: list[Trace], cluster: str, policies: list[str], more: Mapping[str, Any] | None = None
) -> float:
    """Print a line for each policy and predictor; the part of promises broken beyond the limit."""
    worst = 0.0
    for predictor, limit in LIMITS.items():
        for policy in policies:
            runs = enumerate(traces)
            counts = np.sum(
                [count(trace, policy, predictor, cluster, n, more or {}) for n, trace in runs],
                axis=0,
            )
            met, missed, declined = counts.tolist()
            part = missed / max(met + missed, 1)
            worst = max(worst, part - limit if policy != POLICIES[0] else 0.0)
            total = met + missed + declined
            print(
                f"{predictor:10}{policy:30}{met / total:8.1%}{declined / total:10.1%}"
                f"{missed:8}{part:13.1%}",
                flush=True,
            )
    return worst


def count(
    trace: Trace, policy: str, predictor: str, cluster: str, seed: int, more: Mapping[str, Any]
) -> tuple[int, int, int]:
    """Deadlines met, missed and declined."""
    result = weft.simulate(trace, policy, cluster, predictor=predictor, seed=seed, **more)
    metrics = result.outcomes[policy][0].metrics
    total = sum(job.deadline is not None for job, _ in trace)
    missed, declined = int(metrics["deadlines_missed"]), int(metrics["deadlines_declined"])
    return total - missed - declined, missed, declined


def read_given(path: Path, kind: str) -> tuple[Trace, str]:
    """Jobs that declare how many steps they take, and the speeds of their models as a table."""
    rows, speeds = [], {}
    with path.open() as file:
        for row in csv.DictReader(file):
            model, batch = row["model_name"], row["batch_size"]
            most = most_gpus(kind, model, int(batch))
            known = {n: rate for n, rate in read_speeds(kind, model, batch).items() if n <= most}
            speeds[f"{model}-{batch}"] = known
            gpus = max(n for n in known if n <= max(int(row["num_gpu"]), min(known)))
            steps = float(row.get("iteration") or row["num_iteration"])
            due = float(row.get("ddl") or row["deadline"])
            firm = row.get("best_effort") != "1"
            job = Job(
                JobId(row["job_id"]),
                float(row.get("submit_time") or row["submission_time"]),
                Demand(gpus, min(known), max(known)),
                model=f"{model}-{batch}",
                hints={"steps": steps},
                deadline=due if firm else None,
                deadline_or=Or.DECLINE if firm else Or.UNSAID,
            )
            rows.append((job, Truth(steps / known[gpus])))
    rows.sort(key=lambda pair: pair[0].submitted)
    lines = [
        f"{model},{kind.lower()},{n},{rate}"
        for model, known in speeds.items()
        for n, rate in known.items()
    ]
    return Trace(path.stem, tuple(rows)), "\n".join(["model,kind,gpus,steps_per_s", *lines]) + "\n"


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
