"""A job that was just given its devices keeps them when its equal comes back from a failure."""

from __future__ import annotations

import pytest
from tests.cheap import every_policy

from weft.core.events.event import Decided, Failed, Started, Submitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.core.state.state import State
from weft.perf.linear import LinearBeliefs
from weft.perf.sharing.colocation import Colocated
from weft.perf.sharing.hinted_profile import profile_of
from weft.predict.hinted import Hinted

FIRST, SECOND = JobId("first"), JobId("second")
# Each round goes to the jobs that have had least of their shares, whoever holds devices.
BY_SHARES = ("gandiva_fair", "gavel", "shockwave", "synergy")
BY_START = ("tiresias",)  # inside a queue the job that started first goes first, as published
CASES = [p for p in every_policy() if p.partition(":")[0] not in (*BY_SHARES, *BY_START)]


def crowd(demand: Demand, hints: dict[str, float]) -> View:
    """Two equal jobs on one node: the first died as it started, the second has its place."""
    cluster = parse_cluster("1x2:v100")
    whole = Allocation((Slice(cluster.nodes[0].id, (0, 1)),))
    state = State(cluster)
    for name in (FIRST, SECOND):
        state.fold(0.0, Submitted(Job(name, 0.0, demand, hints=hints)))
    state.fold(0.0, Decided(1, changes={FIRST: whole}))
    state.fold(1.0, Started(FIRST, 1))
    state.fold(1.0, Failed(FIRST, 1, "rank 0 ended with killed by SIGKILL", retry=True))
    state.fold(1.0, Decided(2, changes={SECOND: whole}))
    knowledge = Knowledge(Hinted(), LinearBeliefs(), Colocated(profile_of))
    return View(1.1, state.table, cluster, state.free, knowledge)


@pytest.mark.parametrize("policy", CASES)
@pytest.mark.parametrize("hints", [{"duration_s": 1000.0}, {}], ids=["known", "unknown"])
def test_a_job_is_not_stopped_for_its_equal(policy: str, hints: dict[str, float]) -> None:
    for demand in (Demand(2), Demand(2, 1, 2), Demand(2, 2, 2)):
        changes = build("policy", policy).decide(crowd(demand, hints)).changes

        assert changes.get(SECOND, Allocation(())) is not None
