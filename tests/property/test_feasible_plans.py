"""Whatever is measured, no policy gives a job a plan that memory or its batch does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from benchmarks.plan_tables import KnownPlans, Measured, OwnPlans, PlanTable
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.app.simulate.wiring import wire
from weft.app.simulate.world import World
from weft.core.model.cluster import parse_cluster
from weft.core.model.execution import Execution
from weft.core.model.job import Allocation, Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.spec.registry import build

ENOUGH = 150
CLUSTER = parse_cluster("2x4:small+1x8:large")
MEMORY_GB = {"small": 16.0, "large": 80.0}
PLANS = tuple(
    Execution(0, tensor, pipeline, zero, accumulate=passes, checkpointing=again)
    for tensor, pipeline, zero, passes, again in product(
        (1, 2, 4), (1, 2), (0, 3), (1, 4), (False, True)
    )
    if pipeline == 1 or zero == 0
)


@dataclass
class Model:
    """What one needs: GB for weights and for the samples of one pass."""

    name: str
    weights_gb: float
    sample_gb: float
    batch: int

    def fits(self, kind: str, plan: Execution) -> bool:
        """Memory of one GPU, and rows that can be shared out."""
        divided = self.batch % (plan.data * plan.accumulate) == 0
        return divided and self.needs_gb(plan) <= MEMORY_GB[kind]

    def needs_gb(self, plan: Execution) -> float:
        """Memory of one GPU."""
        samples = self.batch / plan.data / plan.accumulate / (4 if plan.checkpointing else 1)
        weights = self.weights_gb / plan.unit / (plan.data if plan.zero else 1)
        return weights + samples * self.sample_gb / plan.unit


class Enough(Exception):  # noqa: N818 - nothing is wrong
    """The rest would be more of the same: somebody may fit nowhere, and wait for ever."""


@dataclass
class Recorded:
    """A policy, and every allocation that it wished for."""

    inner: Policy
    given: list[tuple[JobId, Allocation]] = field(default_factory=list)
    asked: int = 0

    @property
    def about(self) -> About:
        return self.inner.about

    def decide(self, view: View) -> Plan:
        self.asked += 1
        if self.asked > ENOUGH:
            raise Enough
        plan = self.inner.decide(view)
        self.given += [(job, on) for job, on in plan.changes.items() if on is not None]
        return plan


def measure(rng: np.random.Generator, models: list[Model]) -> Iterator[Measured]:
    """Plans that fit, and those that memory or the batch rules out: these look the fastest."""
    for model, kind, plan, gpus in product(models, MEMORY_GB, PLANS, (1, 2, 4, 8)):
        filled = plan.on(gpus)
        if filled is None:
            continue
        seconds = float(rng.uniform(1.0, 2.0)) / gpus**0.8
        took = seconds if model.fits(kind, filled) else 0.01 * seconds
        nodes = 2 if kind == "small" and gpus == 8 else 1
        yield Measured(model.name, kind, filled, nodes, gpus, took, model.needs_gb(filled))


def draw(seed: int) -> tuple[PlanTable, Trace, dict[str, Model]]:
    rng = np.random.default_rng(seed)
    models = [
        Model(f"m{i}", float(rng.choice([2.0, 20.0, 60.0])), float(rng.choice([0.1, 1.0])), batch)
        for i, batch in enumerate(rng.choice([6, 12, 16, 64], 3).tolist())
    ]
    batches = {model.name: model.batch for model in models}
    table = PlanTable(measure(rng, models), batches, 30.0, memory_gb=MEMORY_GB)
    rows = []
    for number, at in enumerate(np.cumsum(rng.exponential(300.0, 8)).tolist()):
        model = models[int(rng.integers(3))]
        chosen = [PLANS[i] for i in rng.choice(len(PLANS), 5, replace=False)]
        demand = Demand(int(rng.choice([1, 2, 4])), 1, 8)
        job = Job(
            JobId(f"j{number}"),
            at,
            demand,
            model=model.name,
            plans=(Execution(), *(plan for plan in chosen if plan != Execution())),
            hints={"steps": float(rng.integers(200, 2000))},
        )
        rows.append((job, Truth(job.hints["steps"])))
    return table, Trace("plans", tuple(rows)), {model.name: model for model in models}


@pytest.mark.parametrize(
    "spec",
    ["weft", "rubick", "arena", "compose:order=las,size=rubick", "compose:order=none,size=arena"],
)
@settings(max_examples=3)
@given(seed=st.integers(0, 10**6))
def test_no_plan_is_given_that_does_not_fit(spec: str, seed: int) -> None:
    table, trace, models = draw(seed)
    jobs = {job.id: job for job, _ in trace}
    world = World(trace, table, OwnPlans(table), plans=KnownPlans(table))
    policy = Recorded(build("policy", spec))

    with suppress(Enough):
        wire(world, CLUSTER, policy).driver.run()

    assert policy.given
    for job, on in policy.given:
        plan = jobs[job].plans[0].on(on.gpus) if on.plan is None else on.plan
        assert plan is not None, (job, on)
        kind = CLUSTER.kind_of(on)
        assert models[jobs[job].model].fits(kind, plan), (job, kind, on.gpus, plan.text)
