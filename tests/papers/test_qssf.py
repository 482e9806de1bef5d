"""QSSF (Helios, SC 2021): the least predicted GPU time first, by its worked examples."""

from __future__ import annotations

import pytest

import weft
from tests.cheap import check_contract
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.policies.gittins import Gittins
from weft.policies.qssf import Qssf

Spec = tuple[str, int, float, float]
QUEUE: tuple[Spec, ...] = (("first", 4, 0, 100), ("wide", 4, 1, 10), ("thin", 1, 2, 30))


def jcts(jobs: tuple[Spec, ...], policy: str, predictor: str = "oracle") -> list[float]:
    pairs = tuple((Job(JobId(n), s, Demand(g), user=n), Truth(t)) for n, g, s, t in jobs)
    trace = Trace("worked", pairs)
    result = weft.simulate(trace, policy, "1x4:v100", predictor=predictor, restart_cost=0.0)
    return [round(float(t), 6) for t in result.outcomes[policy][0].per_job.jct_s]


def test_the_least_gpu_time_goes_first_and_nobody_is_stopped() -> None:
    # thin has 30 GPU-seconds and wide 40: wide has the shorter length, and yet waits.
    assert jcts(QUEUE, "qssf") == [100.0, 139.0, 128.0]
    assert jcts(QUEUE, "sjf") == [100.0, 109.0, 138.0]


def test_who_does_not_fit_holds_up_the_rest() -> None:
    jobs: tuple[Spec, ...] = (("a", 3, 0, 100), ("b", 2, 1, 10), ("c", 1, 2, 90))

    assert jcts(jobs, "qssf") == [100.0, 109.0, 188.0]


def test_the_contract_holds() -> None:
    check_contract(Qssf())
    check_contract(Gittins(predicted=True))


def test_gittins_reads_each_jobs_own_distribution() -> None:
    # The truth is one number, so the index is the inverse of the GPU time left.
    jobs: tuple[Spec, ...] = (("long", 4, 0, 400), ("short", 4, 10, 50))

    assert jcts(jobs, "gittins:predicted=true") == pytest.approx([450.0, 50.0])
