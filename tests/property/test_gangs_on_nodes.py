"""Every policy, in simulation and live under rules, keeps gangs on the nodes they ask for."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cheap import every_policy
from tests.examples import some
from tests.scenarios.drawn import DrawnScenario, ScenarioStep
from tests.scenarios.live import play

from weft.core.events.event import Finished
from weft.core.model.cluster import parse_cluster
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.trace import Trace, Truth
from weft.core.spec.registry import build
from weft.testing.check import check_run, draw_on_nodes

CLUSTER = "3x4:v100+2x2:t4"
RULES = "skip_failing|quota:limits=red=12,weights=red=1/blue=2|priority|no_preempt|steady"
COUNT = 12


def gangs(seed: int) -> list[Job]:
    """Two gangs on given nodes for each plain job, some of which may not be stopped."""
    rng, jobs = np.random.default_rng(seed), []
    for i in range(COUNT):
        nodes = draw_on_nodes(rng, parse_cluster(CLUSTER), ())
        job = Job(
            JobId(f"j{i}"),
            float(60 * i),
            nodes if i % 3 else Demand(int(rng.integers(1, 7))),
            tenant=("red", "blue")[i % 2],
            priority=float(i % 4 == 0),
            preemptible=bool(rng.random() < 0.7),
            hints={"duration_s": float(rng.choice([60.0, 300.0, 2000.0]))},
        )
        jobs.append(job)
    return jobs


@pytest.mark.parametrize("spec", every_policy())
def test_gangs_are_on_their_nodes_in_simulation_and_all_jobs_end(spec: str) -> None:
    pairs = tuple((job, Truth(job.hints["duration_s"])) for job in gangs(len(spec)))

    log = check_run(build("policy", spec), parse_cluster(CLUSTER), Trace("gangs", pairs))

    assert sum(isinstance(event, Finished) for _, event in log) == COUNT


@pytest.mark.parametrize("spec", every_policy())
def test_a_gang_runs_on_the_only_kind_that_has_enough_nodes(spec: str) -> None:
    gang = Job(JobId("j"), demand=Demand(8, nodes=2), hints={"duration_s": 60.0})
    steps = (ScenarioStep(1.0, "submit", "j", gang),)

    assert play(DrawnScenario(0, "2x4:v100+1x8:a100", spec, steps)) is None


@pytest.mark.parametrize("spec", some(every_policy(), 0, 12))
def test_gangs_are_on_their_nodes_under_rules_and_all_jobs_end(spec: str) -> None:
    steps = tuple(ScenarioStep(30.0, "submit", job.id, job) for job in gangs(len(spec)))

    assert play(DrawnScenario(0, CLUSTER, f"{RULES}|{spec}", steps)) is None
