"""Every registered policy keeps the contract, on fixed cases and on drawn clusters and traces."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cheap import check_contract, every_policy
from tests.examples import examples
from tests.strategies import clusters, traces

from weft.core.events.event import Finished
from weft.core.model.cluster import Cluster
from weft.core.plan.policy import Policy
from weft.core.spec.registry import build
from weft.sim.faults import Faults
from weft.testing.check import check_run

VARIANTS = (
    "fifo:backfill=true",
    "las:thresholds=100/1000",
    "las:by=time,thresholds=100/1000,rule=start",
    "tiresias:knob=2",
    "tiresias:priority=gittins",
    "tiresias:rule=start",
    "gittins:optimal=true",
    "weft:share=true,wake_s=600",
)
SPECS = (*every_policy(), *VARIANTS)
WRAPPED = (
    *("quota:weights=x=2|no_preempt|srtf", "priority|las"),
    *(
        "no_preempt|srtf",
        "lend|srtf",
        "reserve|srtf",
        "skip_failing|srtf",
        "steady|sia:interval=300",
    ),
    *("locality|srtf", "scarce|srtf"),
)


def policy_of(spec: str) -> Policy:
    policy: Policy = build("policy", spec)
    return policy


@pytest.mark.parametrize("spec", (*SPECS, *WRAPPED))
def test_the_policy_keeps_the_contract(spec: str) -> None:
    check_contract(policy_of(spec))


@pytest.mark.parametrize("spec", SPECS)
@settings(examples(20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    data=st.data(),
    cluster=clusters(),
    node_mtbf_h=st.sampled_from((0.0, 0.0, 0.5, 3.0)),
    job_mtbf_h=st.sampled_from((0.0, 0.0, 0.5, 3.0)),
    checkpoint_s=st.sampled_from((0.0, 0.0, 5.0, 90.0)),
    seed=st.integers(0, 99),
)
def test_every_job_of_a_drawn_trace_ends_in_spite_of_faults(
    spec: str,
    data: st.DataObject,
    cluster: Cluster,
    node_mtbf_h: float,
    job_mtbf_h: float,
    checkpoint_s: float,
    seed: int,
) -> None:
    trace = data.draw(traces(cluster, max_jobs=15))
    faults = Faults(node_mtbf_h, repair_h=0.2, job_mtbf_h=job_mtbf_h)

    log = check_run(
        policy_of(spec), cluster, trace, faults=faults, checkpoint_s=checkpoint_s, seed=seed
    )

    assert sum(isinstance(event, Finished) for _, event in log) == len(trace)
