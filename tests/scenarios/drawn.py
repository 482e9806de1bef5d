"""Drawn scenarios: a cluster, a policy under rules, and what people do over a few hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import After, BatchRange, Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.core.spec.registry import names
from weft.frozen import frozen
from weft.testing.check import draw_on_nodes

CLUSTERS = ("1x4:v100", "2x2:v100", "3x4:v100", "1x8:a100", "2x4:v100+1x8:a100", "1x1:t4+2x4:a100")
WRAPPERS = (
    "skip_failing|priority|no_preempt|steady|",
    "skip_failing|quota:limits=red=3/blue=4|priority|no_preempt|steady|",
    "skip_failing|quota:weights=red=1/blue=3|priority|no_preempt|steady|",
    "quota:limits=red=2,weights=red=1/blue=1|priority|no_preempt|",
    "skip_failing|lend:own=red=2/blue=1,min_run_s=60|priority|no_preempt|steady|",
    "lend:own=red=1/blue=2/all=4,parents=red=all/blue=all,min_run_s=0|priority|no_preempt|",
    "priority|no_preempt|",
    "priority|",
    "no_preempt|",
    "steady|",
    "",
)
STEPS = 24
COMMANDS = {"suspend": 0.0, "resume": 0.0, "lower": -1.0, "usual": 0.0, "raise": 1.0}
PAUSES_S = (0.0, 0.0, 0.5, 5.0, 70.0, 400.0)


@frozen
class ScenarioStep:
    """Something that a person does `after_s` seconds: submit `job`, or `what` to `whom`."""

    after_s: float
    what: str
    whom: str = ""
    job: Job | None = None


@frozen
class DrawnScenario:
    """What is played, and the seed it was drawn from."""

    seed: int
    cluster: str
    policy: str
    steps: tuple[ScenarioStep, ...]


def draw(
    seed: int, policies: Sequence[str] = (), wrappers: Sequence[str] = WRAPPERS
) -> DrawnScenario:
    """A scenario; `policies` are all there are by default."""
    rng = np.random.default_rng(seed)
    text = str(rng.choice(CLUSTERS))
    cluster = parse_cluster(text)
    policy = str(rng.choice(policies or names("policy")))
    wrapper = str(rng.choice(wrappers))
    steps: list[ScenarioStep] = []
    submitted: list[str] = []
    for _ in range(int(rng.integers(4, STEPS))):
        step = _step(rng, cluster, submitted)
        submitted += [step.whom] if step.job is not None else []
        steps.append(step)
    return DrawnScenario(seed, text, wrapper + policy, tuple(steps))


def _step(rng: np.random.Generator, cluster: Cluster, submitted: Sequence[str]) -> ScenarioStep:
    pause = float(rng.choice(PAUSES_S))
    dice = rng.random()
    chosen = cluster.nodes[int(rng.integers(len(cluster.nodes)))]
    node, single = str(chosen.id), f":{rng.integers(chosen.gpus)}"
    if dice < 0.1:
        return ScenarioStep(pause, "drain", node + single * (rng.random() < 0.6))
    if dice < 0.22:
        return ScenarioStep(pause, "undrain", node)
    if dice < 0.38 and submitted:
        return ScenarioStep(pause, "cancel", str(rng.choice(submitted)))
    if dice < 0.55 and submitted:
        return ScenarioStep(pause, str(rng.choice([*COMMANDS])), str(rng.choice(submitted)))
    name = f"j{len(submitted)}"
    return ScenarioStep(pause, "submit", name, _in_order(rng, _job(rng, name, cluster), submitted))


def _in_order(rng: np.random.Generator, job: Job, submitted: Sequence[str]) -> Job:
    """Jobs without devices, after others, of a sweep; and most that are none of these."""
    dice = rng.random()
    if dice < 0.1:
        return replace(job, demand=Demand(0), batch=None, cpus=1.0)
    if dice < 0.2 and submitted:
        other = (JobId(str(rng.choice(submitted))),)
        ways = (After(ok=other), After(any=other), After(not_ok=other))
        return replace(job, after=ways[int(rng.integers(len(ways)))])
    if dice < 0.3:
        return replace(job, app="sweep", max_parallel=2)
    return job


def _job(rng: np.random.Generator, name: str, cluster: Cluster) -> Job:
    kinds = () if rng.random() < 0.75 else (str(rng.choice(cluster.kinds)),)
    room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
    length = float(rng.choice([5.0, 60.0, 600.0, 3000.0]))
    gpus = min(int(rng.choice([1, 1, 1, 2, 2, 3, 4, 8])), room)
    level = int(rng.choice([-1, 0, 0, 0, 1]))
    job = Job(
        JobId(name),
        demand=Demand(gpus, kinds=kinds),
        tenant=str(rng.choice(["red", "blue"])),
        model=str(rng.choice(["", "resnet50"])),
        priority=float(level),
        tier=Tier.OPPORTUNISTIC if level < 0 else Tier.GUARANTEED,
        hints={"duration_s": length} if rng.random() < 0.7 else {},
        preemptible=bool(rng.random() < 0.6),
        shareable=bool(rng.random() < 0.85),
        launch=Launch(("true",), retries=3, backoff_s=2.0),
    )
    return _of_some_sort(rng, job, cluster, length)


def _of_some_sort(rng: np.random.Generator, job: Job, cluster: Cluster, length: float) -> Job:
    """Parts of a device, elastic, adaptive or failing jobs, gangs on given nodes, plain ones."""
    dice, demand = rng.random(), job.demand
    room = max(cluster.gpus_by_kind[kind] for kind in demand.kinds or cluster.kinds)
    if dice < 0.15:
        share = float(rng.choice([0.25, 0.5, 0.6]))
        return replace(job, demand=Demand(1, kinds=demand.kinds, share=share), shareable=True)
    if dice < 0.4:
        most = min(room, max(2 * demand.gpus, 2))
        elastic = Demand(1, 1, most, demand.kinds)
        batch = BatchRange(32, 1024, 256) if rng.random() < 0.5 else None
        return replace(job, demand=elastic, batch=batch, preemptible=True)
    if dice < 0.5:
        return replace(job, hints={"duration_s": length, "fails_at_s": length / 2})
    if dice < 0.62:
        return replace(job, demand=draw_on_nodes(rng, cluster, demand.kinds))
    return job
