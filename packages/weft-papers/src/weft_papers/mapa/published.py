"""MAPA's claim on mixes of jobs for a DGX-1V: `python -m weft_papers.mapa.published [--quick]`.

Each mix is 300 jobs of 1 to 5 GPUs, in order of arrival, all there at the beginning: the box is
always as full as it gets. About half of them mind bandwidth. An iteration takes its computation and
its bytes over the effective bandwidth that the paper's own fit gives the GPUs a job got; the part
of an iteration that goes to communication on the best links is our choice (below): the paper's jobs
ran for real. Printed is the execution time of multi-GPU jobs that mind, as a ratio to the best
links there are for their size: by id order, the other rules, and how much lower they are.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time

import numpy as np

import weft
from weft.core.knowledge.traffic import Pattern, Traffic
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.node_types import NODE_TYPES
from weft.core.model.trace import Trace, Truth
from weft.formulas.network.link_scores import list_sets, score_sets

CLUSTER = "1x8:v100@dgx-1v"
RULES = ("lowest", "socket", "greedy", "preserve")
# Part of an iteration spent on communication over the best links; models as in the paper's mixes.
SENSITIVE = {"vgg16": 0.35, "alexnet": 0.3, "caffenet": 0.3, "resnet50": 0.15, "inception": 0.15}
INSENSITIVE = ("googlenet", "cusimann", "gmm", "jacobi")
SCALES = (1.0, 0.5)  # of those parts: as above, and half of them
JOBS, MIXES, QUICK = 300, 20, 4
PAPER = {"75th percentile": 0.124, "worst case": 0.35}


def main() -> int:
    """Print the percentiles of every rule; fail if preserve does not beat id order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} mixes, not {MIXES}")
    mixes = QUICK if parser.parse_args().quick else MIXES
    gains = [compare(mixes, scale) for scale in SCALES]
    print(f"{mixes} mixes of {JOBS} jobs, {process_time():.0f} s of CPU time")
    return 0 if min(gains) > 0.0 else 1


def compare(mixes: int, scale: float) -> float:
    """Run every rule on every mix; the lesser of preserve's two gains."""
    slower: dict[str, list[list[float]]] = {rule: [] for rule in RULES}
    spans: dict[str, list[float]] = {rule: [] for rule in RULES}
    for seed in range(mixes):
        trace = draw_mix(seed, scale)
        for rule in RULES:
            times, span = run(trace, rule)
            slower[rule].append(times)
            spans[rule].append(span)
    print(f"communication x {scale:g}")
    report(slower, spans)
    return min(gain(slower, "preserve", 75.0), gain(slower, "preserve", 100.0))


def report(slower: dict[str, list[list[float]]], spans: dict[str, list[float]]) -> None:
    """Print one line per rule, then our numbers beside the paper's."""
    print(f"{'rule':<10}{'median':>8}{'p75':>8}{'p95':>8}{'worst':>8}{'makespan':>10}")
    for rule, mixes in slower.items():
        every = np.concatenate([np.array(mix) for mix in mixes])
        ranks = "".join(f"{np.percentile(every, p):>8.3f}" for p in (50, 75, 95, 100))
        makespan = np.mean(np.array(spans[rule]) / np.array(spans["lowest"]))
        print(f"{rule:<10}{ranks}{makespan:>10.3f}")
    print("\nlower than by id order    greedy  preserve     paper")
    for name, rank in (("75th percentile", 75.0), ("worst case", 100.0)):
        ours = "".join(f"{gain(slower, rule, rank):>10.1%}" for rule in ("greedy", "preserve"))
        print(f"{name:<22}{ours}{PAPER[name]:>10.1%}")
    best = [
        1.0 - max(a) / max(b) for a, b in zip(slower["preserve"], slower["lowest"], strict=True)
    ]
    print(f"{'worst case, best mix':<22}{'':>10}{max(best):>10.1%}{PAPER['worst case']:>10.1%}\n")


def gain(slower: dict[str, list[list[float]]], rule: str, rank: float) -> float:
    """Return how much lower a percentile is than by id order, over all mixes."""
    ours, theirs = (np.percentile(np.concatenate(slower[r]), rank) for r in (rule, "lowest"))
    return float(1.0 - ours / theirs)


def draw_mix(seed: int, scale: float) -> Trace:
    """300 jobs; what they send takes its share of an iteration on the best links of their size."""
    rng = np.random.default_rng(seed)
    scores = score_sets(NODE_TYPES["dgx-1v"], Pattern.RING)
    jobs = []
    for i in range(JOBS):
        gpus = int(rng.integers(1, 6))
        minds = bool(rng.random() < 0.5)
        model = str(rng.choice(list(SENSITIVE) if minds else INSENSITIVE))
        traffic = None
        if gpus > 1:
            best = float(scores.effective[list_sets(8, gpus)].max())
            share = scale * SENSITIVE.get(model, 0.02)
            traffic = Traffic(0.1, share, 0.1 * share * best * 8.0, sensitive=minds)
        job = Job(JobId(f"j{i:03d}"), 0.0, Demand(gpus), model=model, traffic=traffic)
        jobs.append((job, Truth(float(rng.uniform(300.0, 1200.0)))))
    return Trace(f"mix-{seed}", tuple(jobs))


def run(trace: Trace, rule: str) -> tuple[list[float], float]:
    """Execution times of the jobs that mind over those on the best links, and the makespan."""
    policy = f"mapa:rule={rule}"
    outcome = weft.simulate(trace, policy, CLUSTER).outcomes[policy][0]
    took = dict(
        zip(
            outcome.per_job.id,
            np.subtract(outcome.per_job.end_s, outcome.per_job.start_s),
            strict=True,
        )
    )
    times = [
        float(took[job.id]) / truth.length
        for job, truth in trace
        if job.traffic is not None and job.traffic.sensitive
    ]
    return times, float(outcome.metrics["makespan_h"])


if __name__ == "__main__":
    sys.exit(main())
