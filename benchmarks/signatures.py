"""What each published system is good at, in small.

    python -m benchmarks.signatures [NAME ...] [--seeds 11 12 13]

Each system meets the baseline and what it was built to beat on a workload of its own kind, and must
be better in its own objective by a stated margin, for each of three seeds. Results go to
benchmarks/signatures.json, from which `make docs` writes the table of policies.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import weft
from benchmarks import deadlines
from benchmarks import signature_cases as cases
from weft.core.model.trace import Trace
from weft.frozen import frozen
from weft.sim.result import Outcome

RESULTS = Path(__file__).with_name("signatures.json")
SEEDS, FRESH = (0, 1, 2), (11, 12, 13)  # by which margins were set, and others
WHICH: dict[tuple[int, ...], str] = {SEEDS: "gains", FRESH: "fresh"}
OBJECTIVES = {
    "avg_jct_h": "mean completion time",
    "avg_t90_h": "mean time to 90 % of the loss's fall",
    "least_tenant_ltgf": "least GPU time of a tenant over its entitlement",
    "avg_queue_h": "mean waiting time",
    "makespan_h": "makespan",
    "worst_ftf": "worst finish-time fairness",
    "deadlines_met": "part of deadlines met",
    "total_utility": "worth of jobs at their ends",
    "awake_h": "node-hours awake",
    "evictions": "evictions of spot jobs (and 1)",
    "filled": "part of the GPUs given when all are asked for",
    "first_start_h": "mean time until a job first runs",
    "firm_jct_h": "mean completion time of guaranteed jobs",
    "hours_kept": "part of the hours in which premium jobs have their GPUs",
    "worst_tenant": "minutes that the worst-off tenant's jobs end later than in a cluster of its "
    "own (and 1)",
}
# Of these more is better.
MORE = ("least_tenant_ltgf", "deadlines_met", "total_utility", "filled", "hours_kept")


@frozen
class Workload:
    """A workload on a cluster small enough for seconds of CPU time; built in, or drawn by `of`."""

    name: str
    cluster: str
    jobs: int = 0
    load: float | None = None
    of: Callable[[int], Trace] | None = None
    more: tuple[tuple[str, Any], ...] = ()  # of `weft.simulate`


CROWDED = Workload("philly", "1x8:v100", 150, 1.5)
TENANTS = Workload("philly", "1x8:v100", 80, 1.5)
LOSSES = Workload("losses", "2x4:v100", 20, 1.5)
REGIMES = Workload("shockwave", "1x4:v100", 50, 3.0)
KINDS = Workload("gavel", "2x4:v100+2x4:p100+2x4:k80", 40)
ADAPTIVE = Workload("pollux", "4x4:t4", 30)
ADAPTIVE_KINDS = Workload("pollux", "4x4:t4+2x8:a100", 30)


@frozen
class Signature:
    """A policy is so many times as good as each of `rivals`, by one objective."""

    policy: str
    workload: Workload
    objective: str
    rivals: dict[str, float]


SHARED = Workload("colocated", "1x4:v100", 60, 3.0)
LOOSE = Workload("colocated, half opportunistic", "1x4:v100", of=cases.loose_beside_firm)
LONELY = Workload("colocated", "1x4:v100", 60, 1.5)
SERVERS = Workload("servers", "4x4:v100", 30, 4.0)
DEADLINES = Workload(
    "recurring, with deadlines",
    "4x8:v100",
    of=lambda seed: deadlines.draw(80, seed),
    more=(("predictor", "oracle"),),
)
TIERS = Workload("tiers of service", "", of=cases.tiers_of_service)
CELLS = Workload("three tenants", "", of=cases.three_tenants)
SPOT = Workload("spot beside daily jobs", "4x8:v100", of=cases.spot_beside_days)
HOSTS = Workload(
    "sensitive to cores",
    cases.FEW_CORES,
    of=cases.sensitive_to_cores,
    more=(("restart_cost", 0.0),),
)
PHASES = Workload("cassini", "24x1:a100/nic=50/rack=4:50", of=cases.phases_on_links)
PARTS = Workload("parts of GPUs and gangs", "", of=cases.parts_of_gpus)
LONG_APPS = Workload("long apps", "1x8:v100", of=cases.long_apps)
TIDE = Workload("days and nights", "8x8:v100", of=cases.daily_tide)
BACKFILL = "fifo:backfill=true"
TUNE, PROPORTIONAL = (f"synergy:order=las,mechanism={name}" for name in ("tune", "proportional"))
SHOCKWAVE = "shockwave:window=8,round=600"
POLLUX = "pollux:generations=4,population=12,interval=300"
# Margins lie below what six seeds showed, but those of allox, astraea, cassini and hived, which
# three fresh ones missed: they notice a system that stops working, and estimate nothing.
SIGNATURES = {
    "themis": Signature("themis", CROWDED, "worst_ftf", {"fifo": 50.0}),
    "themis, long apps": Signature(
        "themis", LONG_APPS, "worst_ftf", {"fifo": 5.0, "tiresias": 2.0, "gandiva": 5.0}
    ),
    "tiresias": Signature("tiresias", CROWDED, "avg_jct_h", {"fifo": 4.0}),
    "gittins": Signature("gittins", CROWDED, "avg_jct_h", {"fifo": 5.0}),
    "qssf": Signature("qssf", CROWDED, "avg_jct_h", {"fifo": 2.5}),
    "gavel": Signature("gavel:round=600", KINDS, "avg_jct_h", {"fifo": 1.05}),
    "allox": Signature("allox", KINDS, "avg_jct_h", {"fifo": 1.1}),
    "sia": Signature("sia:interval=300", ADAPTIVE_KINDS, "avg_jct_h", {"fifo": 2.0}),
    "pollux": Signature(POLLUX, ADAPTIVE, "avg_jct_h", {"fifo": 1.3, "tiresias": 1.3}),
    "lyra": Signature("lyra", ADAPTIVE, "avg_jct_h", {"fifo": 1.3}),
    "rubick": Signature("rubick:interval=300", ADAPTIVE, "avg_jct_h", {"fifo": 1.3}),
    "arena": Signature("arena", ADAPTIVE, "avg_jct_h", {"fifo": 1.3}),
    "optimus": Signature("optimus", ADAPTIVE, "avg_jct_h", {"fifo": 1.2}),
    "slaq": Signature("slaq:epoch=60", LOSSES, "avg_t90_h", {"fifo": 1.5, "fair|fifo": 1.5}),
    "shockwave": Signature(SHOCKWAVE, REGIMES, "worst_ftf", {"fifo": 1.5}),
    "shockwave, makespan": Signature(SHOCKWAVE, REGIMES, "makespan_h", {"gavel:round=600": 1.01}),
    "gandiva_fair": Signature(
        "gandiva_fair", TENANTS, "least_tenant_ltgf", {"fifo": 4.0, "tiresias": 1.1}
    ),
    "astraea": Signature("astraea", TENANTS, "least_tenant_ltgf", {"fifo": 4.0, "tiresias": 1.4}),
    "lucid": Signature("lucid", SHARED, "avg_jct_h", {"fifo": 1.4, "tiresias": 1.4}),
    "muri": Signature("muri", SHARED, "makespan_h", {"fifo": 1.02}),
    "iadeep": Signature("iadeep", SHARED, "makespan_h", {"fifo": 1.1}),
    "antman": Signature("antman", LOOSE, "avg_jct_h", {"fifo": 1.7}),
    "antman, guaranteed": Signature("antman", LOOSE, "firm_jct_h", {"fifo": 1.8}),
    "gandiva": Signature("gandiva", LONELY, "first_start_h", {"fifo": 10.0, "tiresias": 4.0}),
    "smd": Signature("smd", SERVERS, "total_utility", {"fifo": 1.1}),
    "elasticflow": Signature(
        "elasticflow", DEADLINES, "deadlines_met", {BACKFILL: 1.1, "srtf": 1.0}
    ),
    "singularity": Signature(
        "singularity", TIERS, "hours_kept", {BACKFILL: 1.05, "priority|srtf": 1.0}
    ),
    "hived": Signature("hived", CELLS, "worst_tenant", {"quota": 1.5}),
    "gfs": Signature(f"gfs|{BACKFILL}", SPOT, "evictions", {f"priority|{BACKFILL}": 1.2}),
    "synergy": Signature(TUNE, HOSTS, "avg_jct_h", {"las": 1.05, PROPORTIONAL: 1.05}),
    "cassini": Signature("cassini|themis", PHASES, "avg_jct_h", {"themis": 1.01}),
    "fgd": Signature("fgd", PARTS, "filled", {"random": 1.04, "best-fit": 1.0}),
    "CES": Signature(f"{BACKFILL} with sleep_nodes=1", TIDE, "awake_h", {BACKFILL: 1.6}),
    "CES, delay": Signature(f"{BACKFILL} with sleep_nodes=1", TIDE, "avg_jct_h", {BACKFILL: 0.99}),
}


@cache
def measure(policy: str, workload: Workload, seed: int, objective: str) -> float:
    """What a policy reaches in one run; `POLICY with NAME=NUMBER` says more of the simulation."""
    trace = workload.of(seed) if workload.of is not None else Trace(workload.name, ())
    if objective in cases.OF_POLICY:
        return cases.OF_POLICY[objective](policy, trace)
    outcome = _run(policy, workload, seed)
    if objective in cases.OF_OUTCOME:
        return cases.OF_OUTCOME[objective](outcome, trace)
    return float(outcome.metrics[objective])


@cache
def _run(policy: str, workload: Workload, seed: int) -> Outcome:
    text, _, setting = policy.partition(" with ")
    name, _, number = setting.partition("=")
    more = dict(workload.more) | ({name: int(number)} if setting else {})
    if workload.of is None:
        more |= {"jobs": workload.jobs, "load": workload.load}
    what = workload.name if workload.of is None else workload.of(seed)
    result = weft.simulate(what, text, workload.cluster, seed=seed, **more)
    return next(iter(result.outcomes.values()))[0]


def gains(signature: Signature, seed: int) -> dict[str, float]:
    """Return how many times as good in its objective the policy is as each rival."""
    objective, workload = signature.objective, signature.workload
    own = measure(signature.policy, workload, seed, objective)
    others = {rival: measure(rival, workload, seed, objective) for rival in signature.rivals}
    more = objective in MORE
    return {rival: own / other if more else other / own for rival, other in others.items()}


def main() -> int:
    """Measure all, or those named; fail where a margin is not reached.

    Results for the usual seeds are kept, and those for three others that margins were not set by.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.signatures")
    parser.add_argument("names", nargs="*", default=[*SIGNATURES])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    asked = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    missed = 0
    for name in asked.names:
        signature = SIGNATURES[name]
        seen = [gains(signature, seed) for seed in asked.seeds]
        least = {rival: min(gain[rival] for gain in seen) for rival in signature.rivals}
        measured = {rival: [round(gain[rival], 2) for gain in seen] for rival in least}
        kept[name] = kept.get(name, {}) | {
            "workload": signature.workload.name,
            "objective": OBJECTIVES[signature.objective],
            "margins": signature.rivals,
        }
        if tuple(asked.seeds) in WHICH:
            kept[name][WHICH[tuple(asked.seeds)]] = measured
        wrong = [rival for rival, gain in least.items() if gain < signature.rivals[rival]]
        missed += len(wrong)
        print(f"{name:19}{measured}{'  MISSED' if wrong else ''}", flush=True)
    if tuple(asked.seeds) in WHICH:
        ordered = {name: kept[name] for name in SIGNATURES if name in kept}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
