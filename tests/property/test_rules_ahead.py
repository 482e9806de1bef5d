"""Who is started before its turn is started where the rules of tenants let it be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scenarios.rules_model import Moment, Running
from tests.scenarios.rules_play import CLUSTERS, TENANTS, draw_rules
from tests.seeds import seeds

from weft.app.serve.rules import Quotas
from weft.core.events.event import Decided, Submitted
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.state.state import State

NOW = 50.0


def drawn(seed: int) -> tuple[State, Quotas, Moment]:
    """Rules, and a cluster whose every GPU has a job of somebody."""
    rng = np.random.default_rng(seed)
    cluster = parse_cluster(CLUSTERS[seed % len(CLUSTERS)])
    rules = draw_rules(rng, cluster)
    running = {}
    for node in cluster.nodes:
        for gpu in range(node.gpus):
            job = Job(JobId(f"{node.id}-{gpu}"), tenant=str(rng.choice(TENANTS)))
            running[job.id] = Running(job, Allocation((Slice(node.id, (gpu,)),)), 0.0)
    state = State(cluster)
    for runner in running.values():
        state.fold(0.0, Submitted(runner.job))
    state.fold(0.0, Decided(1, {name: runner.on for name, runner in running.items()}))
    return state, rules, Moment(NOW, cluster, rules, running, (), sized=False)


@pytest.mark.parametrize("first", seeds(300)[::50])
def test_rules_let_a_job_ahead_exactly_where_none_would_be_broken_in_its_turn(first: int) -> None:
    let = kept = 0
    for seed in range(first, first + 50):
        state, rules, moment = drawn(seed)
        for tenant in TENANTS:
            job = Job(JobId("next"), demand=Demand(1), tenant=tenant)
            for runner in moment.running.values():
                (part,) = runner.on.slices
                others = {name: r for name, r in moment.running.items() if name != runner.job.id}
                before = replace(moment, running=others)
                after = replace(before, running={**others, job.id: Running(job, runner.on, NOW)})

                allowed = rules.allow(
                    job, (NodeId(part.node), part.gpus[0]), runner.job, state, NOW
                )

                broken = {*after.wrong(before)} - {*before.wrong(before)}
                assert allowed == (not broken), (seed, tenant, part, broken)
                let, kept = let + allowed, kept + (not allowed)

    assert min(let, kept) > 100
