"""What a service's default does for plain jobs and for elastic ones, on the same machines.

    python -m benchmarks.default_policy [POLICY ...] [--seeds N] [--plain LOAD] [--elastic LOAD]
        [--first JOBS]
    python -m benchmarks.default_policy [POLICY ...] --crowd

Plain jobs (Philly's sizes and lengths) ask for a fixed number of GPUs, are not stopped for others
and report nothing; half of them come with an estimate that is off by a log-normal factor. Elastic
ones (Pollux's) train with `weft_train`: any number of GPUs, changed live. Every policy runs as in a
service, within its rules and with its predictor: estimates where there are any, else past jobs.
Ratios are to the first policy, the geometric mean over seeds. `--crowd` has plain jobs alone: one
of all 8 GPUs, among 400 of one GPU that keep coming at a load of 0.95.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from weft.app.serve.predicting import HintedOrAlike
from weft.app.serve.rules import Quotas
from weft.app.simulate.setup import read_resize
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import World
from weft.core.knowledge.costs import ChangeCosts
from weft.core.knowledge.knowledge import Knowledge
from weft.core.knowledge.predictor import Predictor
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import Controls
from weft.core.plan.policy import Policy
from weft.core.protocols import PerfModel, SimulatedJob
from weft.core.spec.registry import build, read_spec
from weft.perf.goodput.adaptive import Adaptive
from weft.perf.goodput.beliefs import FittedBeliefs
from weft.perf.goodput.pooled import PooledBeliefs
from weft.perf.goodput.shipped import load_shipped_models
from weft.perf.replay import Replay
from weft.sim.physics import Physics
from weft.traces.options import DrawRequest
from weft.traces.read import find

POLICIES = ("fifo", "fifo:backfill=true", "weft")
CLUSTER = "8x4:t4"
LIVE = "live:prepare_s=5,restart_s=0.7,restart_gb_s=17"  # as `benchmarks.live_resize` found
JOBS, MANY, LARGEST = 100, 3_000, 16
ESTIMATED, OFF = 0.5, 0.5  # the part of plain jobs with an estimate, and how far that is off
HOUR = 3600.0
CROWD, CROWD_GPUS = 400, 8
LARGE = (HOUR, CROWD_GPUS, HOUR)  # when it comes, GPUs, length
WORDS = {
    "wait": "plain: mean wait",
    "wait_p99": "p99",
    "longest": "longest",
    "plain": "mean completion",
    "elastic": "elastic: mean completion",
    "elastic_p99": "p99",
}
Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Mixed:
    """Elastic jobs as their models were measured, plain ones as long as they are."""

    elastic: PerfModel
    plain: PerfModel

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """By what it is."""
        return (self.plain if is_plain(job) else self.elastic).simulate_job(job, truth)

    def restart(self, job: Job, *, first: bool) -> float:
        """By what it is."""
        return (self.plain if is_plain(job) else self.elastic).restart(job, first=first)


class Served(World):
    """A simulation whose scheduler is told what a service's is."""

    def knowledge(self, predictor: Predictor, costs: ChangeCosts | None = None) -> Knowledge:  # noqa: ARG002
        """Estimates, else what past jobs took."""
        return super().knowledge(HintedOrAlike(), costs)


def is_plain(job: Job) -> bool:
    """Whether it is nothing but a command on so many GPUs."""
    return not job.stoppable


def draw(seed: int, plain: float, elastic: float) -> Trace:
    """Both sorts of jobs, at these loads, while elastic ones come."""
    gpus = parse_cluster(CLUSTER).gpus
    rng = np.random.default_rng(seed)
    more = find("pollux", DrawRequest(seed=seed, jobs=JOBS, load=elastic, gpus=gpus))
    until = more.jobs[-1][0].submitted
    drawn = find(
        "philly", DrawRequest(seed=seed, jobs=MANY, load=plain, gpus=gpus, max_gpus=LARGEST)
    )
    pairs = list(more.jobs)
    for job, truth in drawn.jobs:
        off, estimated = float(np.exp(OFF * rng.standard_normal())), rng.random() < ESTIMATED
        hints = {"duration_s": truth.length * off} if estimated else {}
        if job.submitted <= until:
            pairs.append((replace(job, preemptible=False, model="", hints=hints), truth))
    pairs.sort(key=lambda pair: pair[0].submitted)
    return Trace("plain and elastic", tuple(pairs))


def draw_crowd(*, estimated: bool) -> Trace:
    """Small plain jobs that keep coming, and one of all GPUs after an hour."""
    rng = np.random.default_rng(1)
    when = np.cumsum(rng.exponential(0.5 * HOUR / CROWD_GPUS / 0.95, CROWD)).tolist()
    lengths = rng.uniform(0.25 * HOUR, 0.75 * HOUR, CROWD).tolist()
    asked = [*((at, 1, seconds) for at, seconds in zip(when, lengths, strict=True)), LARGE]
    pairs = []
    for number, (at, gpus, length) in enumerate(sorted(asked)):
        hints = {"duration_s": length} if estimated else {}
        job = Job(JobId(f"{number}"), at, Demand(gpus), preemptible=False, hints=hints)
        pairs.append((job, Truth(length)))
    return Trace("a crowd", tuple(pairs))


def simulate(text: str, trace: Trace, cluster: str = CLUSTER) -> Physics:
    """One policy, as a service runs it; what became of the jobs."""
    policy: Policy = build("policy", Quotas().wrap_policy(read_spec("policy", text)))
    models = load_shipped_models()
    fixed = Controls.COUNT not in policy.about.controls
    world = Served(
        trace,
        Mixed(Adaptive(models, None, fixed, False), Replay()),
        FittedBeliefs(),
        able=lambda job: not is_plain(job),
        pooled=PooledBeliefs() if policy.about.pools else None,
    )
    run = wire(world, parse_cluster(cluster), policy, live=read_resize(LIVE))
    run.driver.run()
    return run.physics


def measure(text: str, trace: Trace) -> Numbers:
    """Hours that jobs of both sorts took under a policy."""
    physics = simulate(text, trace)
    submitted = np.array([job.submitted for job, _ in trace])
    plain = np.array([is_plain(job) for job, _ in trace])
    wait = (physics.first_start - submitted)[plain] / HOUR
    whole = (physics.ended_at - submitted) / HOUR
    return {
        "wait": float(wait.mean()),
        "wait_p99": float(np.quantile(wait, 0.99)),
        "longest": float(wait.max()),
        "plain": float(whole[plain].mean()),
        "elastic": float(whole[~plain].mean()),
        "elastic_p99": float(np.quantile(whole[~plain], 0.99)),
    }


def show(by_policy: dict[str, list[Numbers]]) -> None:
    """Hours, and ratios to the first policy seed by seed."""
    table = Table("policy", *WORDS.values(), title="hours (ratio)")
    first = next(iter(by_policy.values()))
    for policy, seeds in by_policy.items():
        cells = []
        for name in WORDS:
            hours = statistics.mean(seed[name] for seed in seeds)
            pairs = zip(seeds, first, strict=True)
            ratio = statistics.geometric_mean(
                max(numbers[name], 1e-3) / max(base[name], 1e-3) for numbers, base in pairs
            )
            cells.append(f"{hours:.2f} ({ratio:.2f})")
        table.add_row(policy, *cells)
    Console(width=140).print(table)


def compare(
    policies: Sequence[str], seeds: int, plain: float, elastic: float, first: int | None = None
) -> None:
    """All of them on the same jobs, the `first` so many, with the CPU seconds that each takes."""
    by_policy: dict[str, list[Numbers]] = {policy: [] for policy in policies}
    for seed in range(seeds):
        drawn = draw(seed, plain, elastic)
        trace = Trace(drawn.name, drawn.jobs[:first])
        for policy in policies:
            began = process_time()
            by_policy[policy].append(measure(policy, trace))
            took = f"{process_time() - began:.1f} CPU s"
            print(
                f"seed {seed}, {len(trace)} jobs, {policy}, {took}: {by_policy[policy][-1]}",
                flush=True,
            )
    show(by_policy)


def compare_crowd(policies: Sequence[str]) -> None:
    """How long the large job waits, and the small ones on average."""
    table = Table("policy", "estimates", "the large one waits", "the others, mean", title="hours")
    for policy in policies:
        for estimated in (False, True):
            trace = draw_crowd(estimated=estimated)
            physics = simulate(policy, trace, f"2x{CROWD_GPUS // 2}:t4")
            waits = physics.first_start - np.array([job.submitted for job, _ in trace])
            large = np.array([job.demand.gpus > 1 for job, _ in trace])
            hours = [float(waits[mask].mean()) / HOUR for mask in (large, ~large)]
            table.add_row(policy, "all" if estimated else "none", *(f"{h:.2f}" for h in hours))
    Console(width=100).print(table)


def main() -> int:
    """Compare the policies that were named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("policies", nargs="*", default=list(POLICIES), metavar="POLICY")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plain", type=float, default=0.4, help="load of plain jobs")
    parser.add_argument("--elastic", type=float, default=0.4, help="load of elastic jobs")
    parser.add_argument("--first", type=int, help="so many jobs alone; all by default")
    parser.add_argument("--crowd", action="store_true", help="a large job among small ones")
    asked = parser.parse_args()
    if asked.crowd:
        compare_crowd(asked.policies)
        return 0
    compare(asked.policies, asked.seeds, asked.plain, asked.elastic, asked.first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
