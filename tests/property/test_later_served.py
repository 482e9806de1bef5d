"""A job that never reports cannot keep its devices from a short one, where jobs are preempted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cheap import every_policy
from tests.examples import some
from tests.seeds import varied

from weft.app.simulate.api import simulate
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.policy import Policy
from weft.core.plan.taxonomy import Elasticity, Preemption
from weft.core.spec.registry import build, names

LONG_S, BOUND_S = 40_000.0, 1_800.0
LEAVES = Preemption.STOPS | Preemption.SUSPENDS
WRAPPERS = tuple(names("wrapper"))
# At 1.1 for a job that waits, two jobs on a GPU each cost 2, one on both 1.1 + 1 / sqrt(2).
ONE_KEEPS_TWO = ("sia",)
CASES = [*enumerate(every_policy())]


def draw(policy: Policy, seed: int) -> tuple[Trace, str]:
    """A long job that fills a node and a short one: that shrinks for it where sizes change.

    It has grown beyond what it asked for there. Elsewhere it is as large as the short one, so that
    it has to stop altogether.
    """
    rng = np.random.default_rng(varied(seed))
    node = int(rng.choice([4] if policy.about.name in ONE_KEEPS_TWO else [2, 4]))
    large, small = Demand(node), Demand(node)
    if resizes(policy):
        asked = int(rng.integers(1, node // 2 + 1))
        large, small = Demand(node // 2, 1, node), Demand(asked, 1, node)
    later = Job(JobId("short"), float(rng.uniform(3000.0, 9000.0)), small)
    length = float(rng.uniform(100.0, 800.0))  # within the first of Tiresias's queues
    jobs = ((Job(JobId("long"), 0.0, large), Truth(LONG_S)), (later, Truth(length)))
    return Trace("two", jobs), f"1x{node}:v100"


def resizes(policy: Policy) -> bool:
    taxonomy = policy.about.taxonomy
    assert taxonomy.preemption is not None
    assert taxonomy.elasticity is not None
    return Preemption.RESIZES in taxonomy.preemption and Elasticity.GPUS in taxonomy.elasticity


def check(policy: Policy, seed: int) -> None:
    taxonomy = policy.about.taxonomy
    assert taxonomy.preemption is not None
    if not (resizes(policy) or taxonomy.preemption & LEAVES):
        return
    trace, cluster = draw(policy, seed)

    result = simulate(trace, policy, cluster)

    jobs = next(iter(result.outcomes.values()))[0].per_job
    bound_s = BOUND_S + (policy.about.every or 0.0)  # one that decides by rounds waits for the next
    assert jobs.start_s[1] <= jobs.submit_s[1] + bound_s
    assert jobs.end_s[1] < jobs.end_s[0]


@pytest.mark.parametrize(("turn", "spec"), CASES)
def test_a_later_short_job_is_served_soon(turn: int, spec: str) -> None:
    check(build("policy", spec), turn)


@pytest.mark.parametrize(("turn", "spec"), CASES)
def test_a_later_short_job_is_served_soon_under_wrappers(turn: int, spec: str) -> None:
    for name in some(WRAPPERS, turn, 2):
        check(build("wrapper", name, inner=build("policy", spec)), turn)
