"""Failures are drawn from a seed, at the rates that were asked for."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster, parse_cluster
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.sim.faults import Faults

TRACE = Trace("t", tuple((Job(JobId(f"j{i}")), Truth(36_000.0, (7.0,))) for i in range(400)))


def test_without_faults_nothing_is_touched() -> None:
    assert Faults().with_failures(TRACE, 0) is TRACE
    assert list(Faults().outages(parse_cluster("2x2:t4"), 0)) == []
    assert list(Faults(node_mtbf_h=1.0).outages(Cluster(()), 0)) == []


def test_jobs_are_struck_at_the_rate_asked_for_beside_their_own_failures() -> None:
    struck = Faults(job_mtbf_h=5.0).with_failures(TRACE, 0)

    points = [truth.failures for _, truth in struck]
    assert all(7.0 in p and list(p) == sorted(p) and p[-1] < 36_000.0 for p in points)
    assert np.mean([len(p) - 1 for p in points]) == pytest.approx(2.0, abs=0.2)
    assert [job for job, _ in struck] == [job for job, _ in TRACE]


def test_the_same_seed_strikes_the_same_and_another_does_not() -> None:
    faults = Faults(job_mtbf_h=5.0)

    assert faults.with_failures(TRACE, 1) == faults.with_failures(TRACE, 1)
    assert faults.with_failures(TRACE, 1) != faults.with_failures(TRACE, 2)


def test_nodes_fail_and_are_mended_at_the_rates_asked_for() -> None:
    cluster = parse_cluster("1x1:t4")

    drawn = list(islice(Faults(node_mtbf_h=10.0, repair_h=2.0).outages(cluster, 0), 4000))

    gaps = np.diff([0.0] + [at for at, _, _ in drawn]) / 3600.0
    assert gaps[0::2].mean() == pytest.approx(10.0, rel=0.1)
    assert gaps[1::2].mean() == pytest.approx(2.0, rel=0.1)


def test_outages_depend_on_the_seed_alone() -> None:
    faults, cluster = Faults(node_mtbf_h=1.0), parse_cluster("3x1:t4")

    assert list(islice(faults.outages(cluster, 5), 20)) == list(
        islice(faults.outages(cluster, 5), 20)
    )


@pytest.mark.parametrize("values", [{"node_mtbf_h": -1.0}, {"job_mtbf_h": -0.1}, {"repair_h": 0.0}])
def test_impossible_times_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match="faults need times above 0, got node_mtbf_h="):
        Faults(**values)
