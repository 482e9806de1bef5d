"""Average completion time, restarts and GPU-hours against the authors' simulator."""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

import weft
from weft.sim.result import Outcome
from weft_papers.published import find_authors_class
from weft_papers.sia.published.retune import retuned

SIA = "authors/sia"
GAVEL = "gavel:objective=max-sum-throughput,solve=round,queue=all"
ROUND_S = {SIA: 60.0, GAVEL: 360.0}
# Average JCT h, restarts a job, GPU-hours a job of the authors' simulator; Gavel's JCT.
THEIRS = {
    "philly/workload-1": ((0.544, 4.41, 4.07), 1.671),
    "philly/workload-2": ((0.774, 4.56, 3.35), 2.103),
    "saturn/workload-1": ((0.587, 4.34, 3.59), 1.798),
}
TOLERANCE = (0.05, 0.10, 0.10)
# The homogeneous cluster: average JCT h in the paper, and whether jobs are rigid. Themis is its
# goal, finish-time fairness, in Gavel's rounds.
THEMIS = "gavel:objective=finish-time-fairness,solve=round,queue=all"
HOMOGENEOUS = {GAVEL: (4.3, True), THEMIS: (5.4, True), "sia": (1.9, False), "pollux": (2.0, False)}
PHILLY = tuple(f"philly/workload-{i}" for i in range(1, 9))


def simulate(data: Path, name: str, policy: str, cluster: str) -> tuple[Outcome, float]:
    return simulate_file(data, data / "workloads" / f"{name}.csv", policy, cluster)


def simulate_file(data: Path, file: Path, policy: str, cluster: str) -> tuple[Outcome, float]:
    began = time.process_time()
    result = weft.simulate(
        str(file),
        find_authors_class(policy),
        cluster,
        profiles=str(data / "profiles"),
        free_moves=True,
    )
    return result.outcomes[find_authors_class(policy)][0], time.process_time() - began


def gpu_hours(outcome: Outcome, round_s: float) -> float:
    """GPU-hours a job with the last round of each job counted whole, as the authors log them."""
    jobs = outcome.per_job
    idle = 0.0
    for end, start, gpus in zip(jobs.end_s, jobs.start_s, _last_size(outcome), strict=True):
        idle += gpus * (math.ceil((end - start) / round_s) * round_s - (end - start))
    return outcome.metrics["gpu_hours_per_job"] + idle / 3600.0 / len(jobs.id)


def _last_size(outcome: Outcome) -> list[float]:
    held = {bar.job: 0.0 for bar in outcome.timeline}
    ends = dict(zip(outcome.per_job.id, outcome.per_job.end_s, strict=True))
    for bar in outcome.timeline:
        held[bar.job] += bar.end_s == ends[bar.job]
    return [held.get(job, 0.0) for job in outcome.per_job.id]


def run(data: Path) -> int:
    wrong = 0
    print("heterogeneous 64 GPUs (6x4 T4, 3x8 RTX, 2x8 A100); JCT h, restarts/job, GPU-h/job")
    print(f"{'workload':<20} {'ours':>22} {'theirs':>22} {'off by':>24} {'CPU s':>6}")
    for name, (theirs, gavel) in THEIRS.items():
        outcome, cpu = simulate(data, name, SIA, "sia-hetero")
        m = outcome.metrics
        ours = (m["avg_jct_h"], m["restarts_per_job"], gpu_hours(outcome, ROUND_S[SIA]))
        wrong += _row(name, ours, theirs, TOLERANCE, cpu)
        outcome, cpu = simulate(data, name, GAVEL, "sia-hetero")
        wrong += _row("  Gavel+TunedJobs", (outcome.metrics["avg_jct_h"],), (gavel,), (0.05,), cpu)
    return 1 if wrong else 0


def _row(
    name: str,
    ours: tuple[float, ...],
    theirs: tuple[float, ...],
    within: tuple[float, ...],
    cpu: float,
) -> int:
    off = [a / b - 1.0 for a, b in zip(ours, theirs, strict=True)]
    cells = [" ".join(f"{v:.3f}" for v in values) for values in (ours, theirs)]
    shown = " ".join(f"{v:+.1%}" for v in off)
    bad = any(abs(v) > limit for v, limit in zip(off, within, strict=True))
    print(f"{name:<20} {cells[0]:>22} {cells[1]:>22} {shown:>24} {cpu:>6.1f}{'  OUTSIDE' * bad}")
    return int(bad)


def homogeneous(data: Path) -> int:
    """The Sia paper's table 4: 16x4 T4, Philly; rigid jobs tuned anew for that cluster."""
    print(
        "homogeneous 16x4 T4, the eight philly workloads: average JCT h (ours, paper), below Gavel"
    )
    mean: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [retuned(data, name, "t4", 64, Path(folder)) for name in PHILLY]
        for policy, (paper, rigid) in HOMOGENEOUS.items():
            hours = []
            for name, file in zip(PHILLY, files, strict=True):
                path = file if rigid else data / "workloads" / f"{name}.csv"
                outcome, _ = simulate_file(data, path, policy, "sia-homo")
                hours.append(outcome.metrics["avg_jct_h"])
            mean[policy] = sum(hours) / len(hours)
            off = 1.0 - mean[policy] / mean[GAVEL]
            print(f"  {policy:<62} {mean[policy]:5.2f} {paper:5.1f} {off:+7.0%}", flush=True)
    bounds = (0.5 <= 1.0 - mean[ours] / mean[GAVEL] <= 0.7 for ours in ("sia", "pollux"))
    apart = abs(mean["pollux"] / mean["sia"] - 1.0)
    return 0 if all(bounds) and apart <= 0.1 and mean[GAVEL] < mean[THEMIS] else 1
