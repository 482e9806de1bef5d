"""Rules of tenants hold together: none stops holding because another one is there."""

from __future__ import annotations

import pytest

from weft.app.serve.rules import Quotas
from weft.core.events.event import Started, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.spec.registry import build

CLUSTER = parse_cluster("1x4:a100")


def job(name: str, tenant: str = "vision", gpus: int = 1) -> Job:
    return Job(JobId(name), demand=Demand(gpus), tenant=tenant)


def running(rules: Quotas, *rounds: tuple[Job, ...], policy: str = "las") -> dict[str, float]:
    """GPUs of every tenant after some rounds of submissions."""
    scheduler = Scheduler(build("policy", rules.wrap_policy(PartSpec(policy))), CLUSTER)
    for at, jobs in enumerate(rounds):
        scheduler.step(10.0 * at, [Submitted(job) for job in jobs])
        scheduler.step(
            10.0 * at + 1.0, [Started(started, 1) for started in scheduler.view(0.0).held()]
        )
    held: dict[str, float] = {}
    for name, on in scheduler.view(0.0).held().items():
        tenant = scheduler.state.table.jobs[scheduler.state.table.row(name)].tenant
        held[tenant] = held.get(tenant, 0.0) + on.gpus
    return held


WINDOW = {"w": "a100-0:3=nobody"}


@pytest.mark.parametrize(
    "rules",
    [
        Quotas({"vision": 2.0}, own={"vision": 1.0}),
        Quotas({"vision": 2.0}, own={"nlp": 1.0}),
        Quotas({"vision": 2.0}, own={"vision": 1.0}, windows=WINDOW),
        Quotas({"vision": 2.0}, windows={"w": "a100-0:3=nlp"}),
        Quotas({"vision": 2.0}, {"vision": 4.0}, own={"all": 2.0}, parents={"vision": "all"}),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_limit_holds_beside_every_other_rule(rules: Quotas, one_by_one: bool) -> None:
    jobs = tuple(job(f"v{i}") for i in range(4))
    other = (job("n0", "nlp", 4),)  # waits, and is in another group of the window
    rounds = [other, *((lone,) for lone in jobs)] if one_by_one else [other + jobs]

    assert running(rules, *rounds).get("vision", 0.0) <= 2.0
