"""Wrappers that do something keep the contract of a policy, and their own in whole runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.cheap import CHEAP, check_contract

import weft
from weft.core.events.event import Decided
from weft.core.knowledge.traffic import Traffic, TrafficPhase
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.plan.view import View
from weft.core.spec.registry import build
from weft.policies.fifo import Fifo
from weft.testing.check import check_run
from weft_papers.cassini.wrapper import Cassini
from weft_papers.gandiva.policy import Gandiva
from weft_papers.hived.wrapper import Hived
from weft_papers.themis.policy import Themis


@dataclass(frozen=True)
class Suited:
    """Virtual clusters that fit each of the clusters that the contract is checked on."""

    inner: Policy

    def at(self, kinds: tuple[str, ...]) -> Hived:
        cells = {"vision@t4.node": 1.0, "vision@a100.gpu": 2.0}
        return Hived(self.inner, {"vision@gpu": 1.0} if kinds == ("v100",) else cells)

    @property
    def about(self) -> About:
        return self.at(("v100",)).about

    def decide(self, view: View) -> Plan:
        return self.at(view.cluster.kinds).decide(view)


@pytest.mark.parametrize(
    "inner", ["fifo", "tiresias", "sia", pytest.param("gandiva", marks=pytest.mark.slow)]
)
def test_virtual_clusters_keep_the_contract(inner: str) -> None:
    check_contract(Suited(build("policy", CHEAP.get(inner, inner))))


@pytest.mark.parametrize(
    "spec",
    [
        "cassini|fifo",
        "easy:patience_s=0|fifo:backfill=true",
        "easy:patience_s=0|srtf",
        "defrag:min_run_s=0,margin=0|srtf",
        "defrag:min_run_s=0,margin=0|tiresias",
        "promise|srtf",
        "gfs|fifo",
        "gfs|srtf",
        pytest.param("gfs|sia", marks=pytest.mark.slow),
        "fair:bound=1.5,of=tenants|srtf",
        "fair:bound=1.5|srtf",
    ],
)
def test_a_wrapper_keeps_the_contract(spec: str) -> None:
    check_contract(build("policy", spec))


@pytest.mark.parametrize("inner", ["fifo", "tiresias", "gandiva", "sia", "las"])
def test_a_tenant_fares_as_in_a_private_cluster_whatever_the_others_do(inner: str) -> None:
    rng = np.random.default_rng(3)
    pairs = [
        (
            Job(
                JobId(f"j{i}"),
                float(60 * rng.integers(0, 60)),
                Demand(int(rng.choice([1, 2, 4, 8]))),
                tenant=str(rng.choice(["a", "b"])),
                model="vgg16",
            ),
            Truth(float(60 * rng.integers(1, 40))),
        )
        for i in range(30)
    ]
    pairs.sort(key=lambda pair: pair[0].submitted)
    policy = f"hived:cells=a@node=1/b@node=2|{inner}"
    shared = weft.simulate(Trace("both", tuple(pairs)), policy, "3x8:v100").outcomes[policy][0]

    for tenant, cluster in (("a", "1x8:v100"), ("b", "2x8:v100")):
        own = Trace(tenant, tuple(pair for pair in pairs if pair[0].tenant == tenant))
        alone = weft.simulate(own, inner, cluster).outcomes[inner][0]
        mine = np.array([pair[0].tenant == tenant for pair in pairs])
        assert shared.per_job.end_s[mine] == pytest.approx(alone.per_job.end_s)


@pytest.mark.parametrize("policy", ["tiresias", "fifo"])
def test_the_bound_is_a_dial(policy: str) -> None:
    specs = [policy, *(f"fair:bound={bound}|{policy}" for bound in (3, 1.2))]
    result = weft.compare("philly", specs, "8x4:v100", jobs=150, load=1.2, seeds=(1,))

    worst = [result.mean(spec, "worst_ftf") for spec in specs]
    assert worst[0] > 2.0 * worst[1]
    assert worst[1] < 3.5
    assert worst[2] < worst[1]


@pytest.mark.parametrize("inner", [Fifo(backfill=True), Themis(), Gandiva()])
def test_shifted_jobs_keep_the_contract_on_a_network(inner: Policy) -> None:
    rng = np.random.default_rng(3)
    cluster = parse_cluster("12x1:a100/nic=50/rack=2:50+2x2:t4/nic=25")
    jobs = []
    for i in range(40):
        period = float(rng.choice([0.1, 0.2]))
        share = float(rng.uniform(0.3, 0.6))
        gbit = 40.0 * share * period
        phase = TrafficPhase((1.0 - share) * period, share * period, 40.0)
        traffic = Traffic(period, share, gbit, phases=(phase,)) if rng.random() < 0.8 else None
        job = Job(JobId(f"j{i}"), 20.0 * i, Demand(int(rng.choice([1, 3, 5]))), traffic=traffic)
        jobs.append((job, Truth(float(rng.uniform(60.0, 600.0)))))

    log = check_run(Cassini(inner), cluster, Trace("drawn", tuple(jobs)))

    shifted = [
        to
        for _, event in log
        if isinstance(event, Decided)
        for to in event.changes.values()
        if to is not None and to.time_shift is not None
    ]
    assert shifted
