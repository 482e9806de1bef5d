"""Higher priority goes first, in every policy that reads it and under the wrapper."""

from __future__ import annotations

import pytest
from tests.cheap import every_policy

import weft
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import Controls
from weft.core.spec.registry import build, names
from weft.sim.result import PerJob
from weft_papers.published import find_authors_class

LOW, HIGH = -1.0, 1.0
OWN_TIERS = {
    name for name in every_policy() if Controls.TIER in build("policy", name).about.controls
}
READERS = (
    "antman:loose_priority=-1",
    find_authors_class("authors/antman"),
    "gavel:round=60",
    "gavel:round=60,objective=fifo",
)


def run(policy: str, first: float, second: float, *, shareable: bool = False) -> PerJob:
    """What becomes of two jobs on one GPU that are equal but for their priority."""
    jobs = tuple(
        (Job(JobId(name), 0.0, Demand(1), priority=priority, shareable=shareable), Truth(1200.0))
        for name, priority in (("a", first), ("b", second))
    )
    result = weft.simulate(Trace("two", jobs), policy, "1x1:v100")
    return next(iter(result.outcomes.values()))[0].per_job


def ends(policy: str, first: float, second: float, *, shareable: bool = False) -> tuple[float, ...]:
    return tuple(run(policy, first, second, shareable=shareable).end_s.tolist())


@pytest.mark.parametrize("policy", [name for name in every_policy() if name not in OWN_TIERS])
def test_under_the_wrapper_the_higher_one_starts_first(policy: str) -> None:
    lower, higher = run(f"priority|{policy}", LOW, HIGH).start_s

    assert higher < lower


@pytest.mark.parametrize("policy", [*every_policy(), *READERS])
def test_a_higher_priority_never_hurts(policy: str) -> None:
    for shareable in (False, True):
        _, low = ends(policy, 0.0, LOW, shareable=shareable)
        _, equal = ends(policy, 0.0, 0.0, shareable=shareable)
        _, high = ends(policy, 0.0, HIGH, shareable=shareable)

        assert high <= equal + 1e-6
        assert equal <= low + 1e-6


@pytest.mark.parametrize(
    "policy", ["antman:loose_priority=-1", find_authors_class("authors/antman")]
)
def test_antman_lets_the_lower_one_give_way(policy: str) -> None:
    a, b = ends(policy, LOW, 0.0, shareable=True)

    assert b < a


def test_every_policy_was_asked() -> None:
    assert {build("policy", name).about.name for name in every_policy()} == set(names("policy"))
    assert {"antman"} == OWN_TIERS
