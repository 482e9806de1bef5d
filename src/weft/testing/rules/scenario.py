"""Drawn rules, and what happens under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from weft.app.serve.rules import Quotas
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Demand, Job, JobId, Tier
from weft.core.model.launch import Launch
from weft.frozen import frozen

CLUSTERS = ("1x4:a100", "2x4:a100", "3x2:a100", "1x4:a100+1x4:t4", "2x2:a100+1x3:t4")
POLICIES = ("fifo:backfill=true", "las", "srtf", "tiresias", "weft")  # who leave nothing idle
WHOLE = ("weft",)  # gives a gang of less than a node one node
TENANTS, GROUP = ("red", "blue", "grey"), "lab"
PAUSES_S = (1.0, 5.0, 40.0, 90.0, 700.0)
STEPS = 22
Value = TypeVar("Value")


@frozen
class Step:
    """After so many seconds a job is submitted, or one of those that run ends.

    `turn` chooses which; `rules` are others from then on.
    """

    after_s: float
    job: Job | None = None
    turn: int = 0
    rules: Quotas | None = None


@frozen
class Scenario:
    """Rules around a policy on a cluster, and the steps, as drawn from a seed."""

    seed: int
    cluster: str
    policy: str
    rules: Quotas
    steps: tuple[Step, ...]


def draw(seed: int, policies: Sequence[str] = POLICIES) -> Scenario:
    """A scenario; the same one for the same seed."""
    rng = np.random.default_rng(seed)
    text = _pick(rng, CLUSTERS)
    cluster = parse_cluster(text)
    rules = draw_rules(rng, cluster)
    steps = [_step(rng, cluster, number) for number in range(int(rng.integers(6, STEPS)))]
    return Scenario(seed, text, _pick(rng, policies), rules, tuple(steps))


def draw_rules(rng: np.random.Generator, cluster: Cluster) -> Quotas:
    """Each rule or none, each tenant or not."""
    half = cluster.gpus // 2
    limits = {who: float(rng.integers(1, half + 2)) for who in _some(rng, TENANTS, 0.35)}
    kinds = [f"{who}@{kind}" for who in TENANTS for kind in cluster.kinds]
    limits |= {name: float(rng.integers(0, 4)) for name in _some(rng, kinds, 0.12)}
    weights = {who: float(rng.integers(1, 4)) for who in _some(rng, TENANTS, 0.25)}
    own: dict[str, float] = {}
    parents: dict[str, str] = {}
    if rng.random() < 0.6:
        own = {who: float(rng.integers(1, half + 1)) for who in _some(rng, TENANTS, 0.6)}
        parents = dict.fromkeys(_some(rng, TENANTS, 0.3), GROUP)
        if parents and rng.random() < 0.5:
            own[GROUP] = float(rng.integers(1, cluster.gpus))
    return Quotas(
        limits,
        weights,
        own=own,
        parents=parents if own else {},
        min_run_s=_pick(rng, (0.0, 60.0, 300.0)) if own else None,
        windows=dict(_windows(rng, cluster)),
    )


def _windows(rng: np.random.Generator, cluster: Cluster) -> list[tuple[str, str]]:
    windows = []
    for number in range(int(rng.choice([0, 0, 1, 1, 2]))):
        node = cluster.nodes[int(rng.integers(len(cluster.nodes)))]
        gpus = sorted({int(gpu) for gpu in rng.integers(0, node.gpus, 2)})
        devices = node.id if rng.random() < 0.2 else f"{node.id}:{','.join(map(str, gpus))}"
        start = int(rng.choice([0, 0, 30, 400]))
        when = "" if rng.random() < 0.4 else f"@{start}-{start + int(rng.choice([100, 2000]))}"
        tenant = "" if rng.random() < 0.5 else f"={_pick(rng, TENANTS)}"
        soft = "~" * bool(rng.random() < 0.3)
        windows.append((f"w{number}", f"{soft}{devices}{when}{tenant}"))
    return windows


def _step(rng: np.random.Generator, cluster: Cluster, number: int) -> Step:
    pause = _pick(rng, PAUSES_S)
    dice = rng.random()
    if dice < 0.3:
        return Step(pause, turn=int(rng.integers(100)))
    if dice < 0.36:
        return Step(pause, rules=draw_rules(rng, cluster))
    return Step(pause, _job(rng, f"j{number}", cluster))


def _job(rng: np.random.Generator, name: str, cluster: Cluster) -> Job:
    kinds = () if rng.random() < 0.7 else (_pick(rng, cluster.kinds),)
    room = max(cluster.gpus_by_kind[kind] for kind in kinds or cluster.kinds)
    gpus = min(_pick(rng, (1, 1, 1, 2, 2, 3, 4)), room)
    level = _pick(rng, (-1, 0, 0, 0, 1))
    demand = Demand(gpus, kinds=kinds)
    dice = rng.random()
    if dice < 0.2:
        demand = Demand(gpus, 1, min(room, 2 * gpus), kinds)
    elif dice < 0.35:
        demand = Demand(1, kinds=kinds, share=0.5)
    return Job(
        JobId(name),
        demand=demand,
        tenant=_pick(rng, TENANTS),
        priority=float(level),
        tier=Tier.OPPORTUNISTIC if level < 0 else Tier.GUARANTEED,
        hints={"duration_s": _pick(rng, (60.0, 600.0, 6000.0))},
        preemptible=bool(rng.random() < 0.75) or dice < 0.2,
        launch=Launch(("true",), time_limit_s=_pick(rng, (0.0, 0.0, 0.0, 200.0))),
    )


def _some(rng: np.random.Generator, names: Sequence[str], part: float) -> list[str]:
    return [name for name in names if rng.random() < part]


def _pick(rng: np.random.Generator, values: Sequence[Value]) -> Value:
    return values[int(rng.integers(len(values)))]
