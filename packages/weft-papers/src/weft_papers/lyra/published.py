"""Lyra against no loaning and no scaling: `python -m weft_papers.lyra.published [--quick]`.

Seven own machines of 8 GPUs, and eight that an inference cluster lends by a day's rhythm, as 3,500
GPUs stand to 4,000 in the paper; loaned GPUs a third as fast, as T4 against V100, or alike. Jobs
arrive by day more than by night; a third of the GPU time is of elastic jobs that can use twice
their base demand. Queueing is the time from submission to the first start, as in the paper, whose
production trace is not public. Then who chooses the machines to give back: jobs stopped by it.
`--workers` compares flexible workers of one GPU with the same jobs in workers of two and of four.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from time import process_time

import numpy as np

from weft.app.simulate.api import simulate
from weft.app.simulate.setup import read_loans
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.sim.loans import Loans
from weft.sim.result import Outcome

OWN, LENT = 7, 8
LOAN = f"{LENT}x8:v100,low=0.35,high=0.95,noise=0.02"
DAYS, QUICK_DAYS = 10, 3
LOAD = 1.0
SIZES, PARTS = (1, 2, 4, 8, 16, 32), (0.42, 0.16, 0.16, 0.17, 0.07, 0.02)
ELASTIC = 0.36  # of the GPU time, in jobs of 4 GPUs and more
PAPER = {"queue": 1.53, "jct": 1.48}
WORKERS = (2, 4)
RULES = ("cost", "exact", "fewest", "random")
Variant = tuple[str, str, str]
VARIANTS: tuple[Variant, ...] = (
    ("no loaning, no scaling", "lyra:order=fifo,scale=false", ""),
    ("shortest first", "lyra:scale=false", ""),
    ("scaling alone", "lyra", ""),
    ("loaning alone", "lyra:scale=false", f"{LOAN},speed=0.333"),
    ("lyra", "lyra", f"{LOAN},speed=0.333"),
    ("lyra, loaned GPUs as fast as own", "lyra", LOAN),
    ("lyra, loaned GPUs of another kind", "lyra", f"{LOAN.replace('v100', 't4')},speed=0.333"),
)


def main() -> int:
    """Print queueing and completion times of every variant; fail if Lyra gains less than half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer days")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", action="store_true", help="workers of several GPUs alone")
    args = parser.parse_args()
    if args.workers:
        compare_workers(QUICK_DAYS if args.quick else DAYS, args.seeds)
        return 0
    days = QUICK_DAYS if args.quick else DAYS
    gains = [compare(days, seed) for seed in range(args.seeds)]
    stops = [reclaim(days, seed) for seed in range(args.seeds)]
    queue, jct = np.mean(gains, axis=0)
    print(
        f"\nlyra over no loaning and no scaling: queueing {queue:.2f}x (paper {PAPER['queue']}),",
        end="",
    )
    print(f" completion {jct:.2f}x (paper {PAPER['jct']}); {process_time():.0f} s of CPU time")
    fewest = min(stops, key=lambda stop: stop["random"] / max(stop["cost"], 1))
    return 0 if min(queue, jct) >= 1.25 and fewest["cost"] <= fewest["random"] else 1


def compare(days: int, seed: int) -> tuple[float, float]:
    """Print a table; return what Lyra gains in queueing and completion."""
    trace = draw(days, seed)
    print(
        f"\nseed {seed}: {len(trace)} jobs in {days} days on {OWN * 8} own GPUs, {LENT * 8} to lend"
    )
    print(f"{'':36}{'queueing':>10}{'JCT':>9}{'p95 JCT':>9}{'GPUs used':>11}   against the first")
    first: tuple[float, float] | None = None
    gain = (1.0, 1.0)
    for name, policy, loan in VARIANTS:
        outcome = run(trace, policy, read_loans(loan), seed)
        queue, jct = queueing_h(outcome), float(outcome.avg_jct_h)
        first = first or (queue, jct)
        ratio = (first[0] / queue, first[1] / jct)
        if name == "lyra":
            gain = ratio
        p95 = float(np.percentile(outcome.per_job.jct_s, 95)) / 3600.0
        used = 100.0 * float(outcome.utilization)
        print(
            f"{name:36}{queue:8.2f} h{jct:7.2f} h{p95:7.1f} h{used:9.1f} %"
            f"   {ratio[0]:5.2f}x {ratio[1]:5.2f}x",
            flush=True,
        )
    return gain


def reclaim(days: int, seed: int) -> dict[str, int]:
    """Print what each rule of giving machines back costs; return the jobs it stopped."""
    trace, stops = draw(days, seed), {}
    print(f"\n{'reclaim':10}{'machines':>9}{'stopped':>9}{'scaled in':>11}{'of jobs':>9}{'JCT':>9}")
    for rule in RULES:
        outcome = run(trace, f"lyra:reclaim={rule}", read_loans(LOAN), seed)
        stops[rule] = int(outcome.reclaim_stops)
        print(
            f"{rule:10}{outcome.servers_reclaimed:9.0f}{stops[rule]:9}"
            f"{outcome.reclaim_scale_ins:11.0f}{100.0 * stops[rule] / len(trace):7.1f} %"
            f"{outcome.avg_jct_h:7.2f} h",
            flush=True,
        )
    return stops


def compare_workers(days: int, seeds: int) -> None:
    """Print completion times with workers of several GPUs: these are the units of a cluster."""
    for each in WORKERS:
        whole, units = [], []
        for seed in range(seeds):
            trace = draw(days, seed, least=each)
            whole.append(float(run(trace, "lyra", read_loans(LOAN), seed).avg_jct_h))
            loan = read_loans(LOAN.replace("x8", f"x{8 // each}"))
            smaller = Trace("lyra", tuple((_in_units(job, each), truth) for job, truth in trace))
            units.append(float(run(smaller, "lyra", loan, seed, 8 // each).avg_jct_h))
        ratio = np.mean(np.divide(units, whole))
        print(
            f"workers of {each} GPUs: {np.mean(units):.2f} h, of one {np.mean(whole):.2f} h,"
            f" {ratio:.3f}x; {process_time():.0f} s of CPU time",
            flush=True,
        )


def _in_units(job: Job, each: int) -> Job:
    asked = job.demand
    return replace(job, demand=Demand(asked.gpus // each, asked.min // each, asked.max // each))


def run(trace: Trace, policy: str, loans: Loans, seed: int, node: int = 8) -> Outcome:
    """Run one simulation, on own machines of `node` GPUs."""
    own = f"{OWN}x{node}:v100"
    result = simulate(trace, policy, own, seed=seed, loans=loans, restart_cost=60.0)
    return result.outcomes[policy][0]


def queueing_h(outcome: Outcome) -> float:
    """Mean hours from submission to the first start."""
    return float(np.mean(outcome.per_job.start_s - outcome.per_job.submit_s)) / 3600.0


def draw(days: int, seed: int, least: int = 1) -> Trace:
    """Arrivals with a day's rhythm, lengths log-normal, sizes as in production, from `least` on."""
    sizes = np.maximum(SIZES, least)
    rng = np.random.default_rng([seed, 15])
    mean_gpus = float(np.dot(sizes, PARTS))
    sigma, median = 1.7, 900.0
    mean_s = median * np.exp(sigma**2 / 2.0)
    span = days * 86_400.0
    count = int(LOAD * OWN * 8 * span / (mean_gpus * mean_s))
    at = np.sort(rng.uniform(0.0, span, count * 2))
    busy = 0.5 * (1.0 + 0.6 * np.sin(2.0 * np.pi * (at / 86_400.0 - 0.25)))
    at = at[rng.random(len(at)) < busy][:count]
    gpus = rng.choice(sizes, len(at), p=PARTS)
    seconds = np.minimum(rng.lognormal(np.log(median), sigma, len(at)), 5 * 86_400.0)
    large = gpus >= 4
    chance = ELASTIC * float((gpus * seconds).sum()) / float((gpus * seconds)[large].sum())
    elastic = large & (rng.random(len(at)) < chance)
    rows = []
    for i, (when, size, length) in enumerate(zip(at.tolist(), gpus.tolist(), seconds, strict=True)):
        demand = Demand(size, min=size, max=2 * size if elastic[i] else size)
        rows.append((Job(JobId(f"j{i}"), when, demand), Truth(float(length))))
    return Trace("lyra", tuple(rows))


if __name__ == "__main__":
    sys.exit(main())
