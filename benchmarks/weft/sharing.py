"""Sharing inside the optimiser: ours with and without it, and Sia, where interference is measured.

Two clusters. H200: jobs on one GPU each, drawn from the twelve workloads whose pairs were measured
on an H200 and ship with the package, under the driver's time slicing and under MPS. Three kinds:
jobs of Gavel's types on V100, P100 and K80, at the speeds that its authors measured alone and in
pairs. Lengths are log-normal (median 20 minutes, 1 minute to 8 hours), arrivals Poisson at a `load`
of the cluster's capacity for one job a GPU. How long jobs take is told to nobody. Seed 11 was
looked at while sharing was built, none of these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.weft.table import interval
from weft.app.simulate.setup import Setup
from weft.app.simulate.wiring import wire
from weft.app.simulate.world import world_of
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.policy import Policy
from weft.core.protocols import DeviceSharing
from weft.core.spec.registry import build
from weft.perf.sharing.device_models import load_shipped_pairs
from weft.perf.throughputs import Throughputs, read_throughputs

LOADS = (0.7, 1.0, 1.3)
SEEDS = (21, 22, 23)
JOBS = 400
POLICIES = OURS, ALONE, SIA = ("weft:share=true", "weft", "sia")
H200, KINDS = "2x4:h200", "1x4:v100+1x4:p100+1x4:k80"
TABLE = "simulation_throughputs.json"  # Gavel's, alone and together
MEDIAN_S, SPREAD, SHORTEST_S, LONGEST_S = 1200.0, 1.2, 60.0, 28_800.0

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster, who was measured there, and how its devices serve two jobs."""

    name: str
    cluster: Cluster
    workloads: tuple[tuple[str, dict[str, float]], ...]
    capacity: float
    sharing: DeviceSharing = "timeslicing"
    profiles: str = ""


def run(data: Path, *, quick: bool = False) -> int:
    """Print ratios of ours with sharing to ours without, and to Sia."""
    print(f"{'':<24}{'':>5} {'to weft':^42} {'to sia':^14} {'CPU':>5}  restarts a job")
    print(
        f"{'setting':<24}{'load':>5} {'JCT (90 %)':>18}{'p99':>8}{'make':>8}{'FTF':>8} "
        f"{'JCT':>7}{'p99':>7} {'':>5}  with / without"
    )
    for setting in settings(data):
        for load in LOADS[1:2] if quick else LOADS:
            runs = [simulate(setting, load, seed) for seed in (SEEDS[:1] if quick else SEEDS)]
            print(_line(setting.name, load, runs), flush=True)
    return 0


def settings(data: Path) -> Iterator[Setting]:
    """The H200 under both disciplines, and Gavel's kinds where its table is."""
    names = sorted({name for pair in load_shipped_pairs("mps").speeds for name in pair})
    workloads = tuple(_measured(name) for name in names)
    cluster = parse_cluster(H200)
    yield Setting("H200, time slicing", cluster, workloads, 8.0)
    yield Setting("H200, MPS", cluster, workloads, 8.0, "mps")
    path = data / "gavel" / TABLE
    if path.is_file():
        table, cluster = read_throughputs(path, restart_cost=None), parse_cluster(KINDS)
        types = tuple((name, {}) for name in _alone(table, cluster))
        yield Setting(
            "V100, P100, K80", cluster, types, _capacity(table, cluster), profiles=str(path)
        )


def _measured(name: str) -> tuple[str, dict[str, float]]:
    model, _, batch = name.partition(":")
    return model, {"batch": float(batch)}


def _alone(table: Throughputs, cluster: Cluster) -> list[str]:
    """Job types on one GPU that run on every kind."""
    every = {model for model, gpus in table.alone[table.reference] if gpus == 1}
    return sorted(m for m in every if all(table.rate(m, 1, k) > 0.0 for k in cluster.kinds))


def _capacity(table: Throughputs, cluster: Cluster) -> float:
    """GPUs of the reference kind that all of them are worth, in the mean over job types."""
    types = _alone(table, cluster)
    parts = [
        table.rate(m, 1, node.kind) / table.rate(m, 1, table.reference) * node.gpus
        for m in types
        for node in cluster.nodes
    ]
    return sum(parts) / len(types)


def draw(setting: Setting, load: float, seed: int) -> Trace:
    """Jobs that come at this part of what the cluster can do."""
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.normal(np.log(MEDIAN_S), SPREAD, JOBS)).clip(SHORTEST_S, LONGEST_S)
    at = rng.exponential(lengths.mean() / (load * setting.capacity), JOBS).cumsum()
    jobs = []
    for i, which in enumerate(rng.integers(len(setting.workloads), size=JOBS)):
        model, hints = setting.workloads[which]
        job = Job(JobId(f"j{i}"), float(at[i]), model=model, hints=hints)
        jobs.append((job, Truth(float(lengths[i]))))
    return Trace("drawn", tuple(jobs))


def simulate(setting: Setting, load: float, seed: int) -> dict[str, Numbers]:
    """The same jobs under each policy."""
    numbers = {}
    for name in POLICIES:
        policy: Policy = build("policy", name)
        trace = draw(setting, load, seed)
        setup = Setup(trace, policy, profiles=setting.profiles, sharing=setting.sharing)
        world = world_of(setup, trace, setting.cluster, policy.about)
        began = time.process_time()
        outcome = wire(world, setting.cluster, policy).outcome(name)
        numbers[name] = {**outcome.metrics, "cpu_s": time.process_time() - began}
    return numbers


def _line(name: str, load: float, runs: list[dict[str, Numbers]]) -> str:
    def ratios(metric: str, to: str) -> np.ndarray:
        return np.array([run[OURS][metric] / run[to][metric] for run in runs])

    def average(to: str) -> str:
        values = ratios("avg_jct_h", to)
        low, high = interval(values)
        return f"{values.mean():.2f} ({low:.2f}-{high:.2f})"

    rest = "".join(
        f"{ratios(m, ALONE).mean():>8.2f}" for m in ("p99_jct_h", "makespan_h", "worst_ftf")
    )
    sia = "".join(f"{ratios(m, SIA).mean():>7.2f}" for m in ("avg_jct_h", "p99_jct_h"))
    restarts = " / ".join(
        f"{np.mean([run[p]['restarts_per_job'] for run in runs]):.1f}" for p in (OURS, ALONE)
    )
    cpu = ratios("cpu_s", ALONE).mean()
    return f"{name:<24}{load:>5.1f} {average(ALONE):>18}{rest} {sia} {cpu:>5.1f}  {restarts}"
