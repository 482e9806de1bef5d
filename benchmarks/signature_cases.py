"""Workloads and objectives of signatures that no built-in workload or metric has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.core.model.job import Demand, Job, JobId, Tier
from weft.core.model.trace import Trace, Truth
from weft.sim.result import Outcome
from weft.traces.options import DrawRequest
from weft.traces.read import find
from weft_papers.cassini import published as network
from weft_papers.fgd import published as fill
from weft_papers.hived import published as cells
from weft_papers.singularity import published as tiers
from weft_papers.synergy import published as hosts

FEW_CORES = str(Path(__file__).with_name("few_cores.yaml"))
HOUR, DAY = 3600.0, 86_400.0
# What pods ask for, alike often: Alibaba's shapes in small.
SHAPES = [(1, 0.4), (1, 0.4), (1, 0.5), (1, 0.6), (1, 0.6), (1, 0.7), (1, 1.0), (2, 1.0), (4, 1.0)]
LOOSE = 0.5  # of jobs that may use what others leave


def loose_beside_firm(seed: int) -> Trace:
    """Jobs that leave room on a GPU; a half of them may only use what the others leave."""
    rng = np.random.default_rng([seed, 44])
    drawn = find("colocated", DrawRequest(seed=seed, jobs=40, gpus=4, load=2.0))
    rows = []
    for job, truth in drawn:
        hints = {"iteration_s": 0.2, "gpu_util": float(rng.uniform(20.0, 60.0)), "gmem_mib": 3e3}
        loose = rng.random() < LOOSE
        tier = Tier.OPPORTUNISTIC if loose else Tier.GUARANTEED
        rows.append((replace(job, hints=hints, batch=None, tier=tier), truth))
    return Trace("loose beside firm", tuple(rows))


def spot_beside_days(seed: int) -> Trace:
    """Guaranteed jobs that come every day at the same hours for two weeks, and spot jobs."""
    rng = np.random.default_rng([seed, 45])
    rows: list[tuple[Job, Truth]] = []
    for day in range(14):
        for number in range(int(rng.integers(5, 8))):
            at = day * DAY + 9.0 * HOUR + float(rng.normal(0.0, 0.5 * HOUR))
            job = Job(JobId(f"firm{day}-{number}"), at, Demand(4), tenant="vision")
            rows.append((job, Truth(float(rng.uniform(5.0, 8.0)) * HOUR)))
    for number in range(300):
        at = float(rng.uniform(0.0, 14 * DAY))
        tier = Tier.OPPORTUNISTIC
        demand = Demand(int(rng.choice([1, 2, 4])))
        job = Job(JobId(f"spot{number}"), at, demand, tier=tier, priority=-0.5)
        rows.append((job, Truth(float(rng.uniform(1.0, 6.0)) * HOUR)))
    rows.sort(key=lambda row: row[0].submitted)
    return Trace("spot beside days", tuple(rows))


def daily_tide(seed: int) -> Trace:
    """Many jobs by day, few by night, for five days."""
    rng = np.random.default_rng([seed, 47])
    rows: list[tuple[Job, Truth]] = []
    at = 0.0
    while at < 5 * DAY:
        by_day = 1.0 + np.sin(2.0 * np.pi * (at / DAY - 0.25))
        at += float(rng.exponential(HOUR / (0.1 + 1.5 * by_day)))
        length = float(rng.lognormal(np.log(2.0 * HOUR), 0.7))
        rows.append(
            (Job(JobId(f"j{len(rows)}"), at, Demand(int(rng.choice([2, 4, 8])))), Truth(length))
        )
    return Trace("tide", tuple(rows))


def long_apps(seed: int) -> Trace:
    """Jobs of 1 to 48 hours on 1 to 8 GPUs, half as many again as fit on eight."""
    rng = np.random.default_rng([seed, 48])
    sizes = (1, 1, 2, 4, 8)
    shortest, longest = 1.0, 48.0
    mean_s = float(np.mean(sizes)) * np.sqrt(shortest * longest) * HOUR
    rows: list[tuple[Job, Truth]] = []
    at = 0.0
    for number in range(100):
        at += float(rng.exponential(mean_s / (8 * 1.5)))
        hours = float(np.exp(rng.uniform(np.log(shortest), np.log(longest))))
        gpus = int(rng.choice(sizes))
        rows.append((Job(JobId(f"app{number}"), at, Demand(gpus)), Truth(hours * HOUR)))
    return Trace("long apps", tuple(rows))


def sensitive_to_cores(seed: int) -> Trace:
    """Jobs of ten models, of which some need many CPU cores and some hardly any."""
    return hosts.workload(hosts.MIXES["40/20/40"], 1.2 * 16 / hosts.GPUS, jobs=250, seed=seed)


def tiers_of_service(seed: int) -> Trace:
    """Singularity's three tiers, in small."""
    return tiers.draw(1.15, 6, seed)


def three_tenants(seed: int) -> Trace:
    """Small jobs of two tenants, and gangs of a third."""
    return cells.draw(seed)


def parts_of_gpus(seed: int) -> Trace:
    """No trace but its seed: `filled` draws what a placer is given."""
    return Trace(str(seed), ())


def phases_on_links(seed: int) -> Trace:
    """CASSINI's models on servers of one GPU, four of them below each uplink."""
    return network.draw(30, seed, network.GRID_MS)


# ---- objectives


def filled(placer: str, trace: Trace) -> float:
    """Part of 64 GPUs that parts of GPUs and gangs find where they ask for all of them."""
    seed = int(trace.name)
    name = placer.partition(" ")[0]
    return float(np.mean([_fill(name, [seed, number]) for number in range(20)]))


def _fill(placer: str, seed: list[int]) -> float:
    rng = np.random.default_rng(seed)
    nodes = 8
    tasks = [fill.PodDemand(gpus, share, 8.0 * gpus * share, 0.0, ()) for gpus, share in SHAPES]
    pool = fill.Pool(
        "v100",
        np.arange(nodes),
        np.ones((nodes, 8)),
        np.full(nodes, 96.0),
        np.ones(nodes),
        np.zeros((nodes, 9), np.intp),
    )
    pool.classes = fill.typical(tasks)
    board = fill.Board([pool], fill.SCORERS[placer], rng if placer == "random" else None)
    asked = given = 0.0
    while asked < pool.left.size:
        task = tasks[int(rng.integers(len(tasks)))]
        asked += task.total
        given += task.total if board.place(task) else 0.0
    return given / pool.left.size


def worst_tenant(policy: str, trace: Trace) -> float:
    """Mean minutes by which jobs of the worst-off tenant end later than in a private cluster."""
    how = policy.partition(" ")[0]
    nodes = dict.fromkeys(cells.SHAPES, cells.OWN)
    added = cells.added_waits(trace, cells.CapacityScheduler(), nodes)
    return 1.0 + max(float(wait.mean()) for wait in added[how]) / 60.0


def hours_kept(policy: str, trace: Trace) -> float:
    """Part of the hours in which premium jobs had the GPUs that they were guaranteed."""
    return tiers.measure(policy, trace).attained["premium"]


def first_start_h(outcome: Outcome, _trace: Trace) -> float:
    """Mean hours until jobs first run."""
    rows = outcome.per_job
    return float((rows.start_s - rows.submit_s).mean()) / HOUR


def firm_jct_h(outcome: Outcome, trace: Trace) -> float:
    """Mean completion time of guaranteed jobs."""
    firm = np.array([job.tier is Tier.GUARANTEED for job, _ in trace])
    rows = outcome.per_job
    return float((rows.end_s - rows.submit_s)[firm].mean()) / HOUR


def evictions(outcome: Outcome, _trace: Trace) -> float:
    """Jobs that were stopped, and 1."""
    return 1.0 + float(outcome.metrics["preemptions"])


def awake_h(outcome: Outcome, _trace: Trace) -> float:
    """Node-hours awake of eight nodes until the last job has ended."""
    metrics = outcome.metrics
    return 8.0 * metrics["makespan_h"] - metrics.get("node_hours_asleep", 0.0)


OF_OUTCOME: dict[str, Callable[[Outcome, Trace], float]] = {
    "first_start_h": first_start_h,
    "firm_jct_h": firm_jct_h,
    "awake_h": awake_h,
    "evictions": evictions,
}
OF_POLICY: dict[str, Callable[[str, Trace], float]] = {
    "filled": filled,
    "worst_tenant": worst_tenant,
    "hours_kept": hours_kept,
}
