"""Jobs on a real Ray cluster of several nodes, brought up for this file and ended after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters.ray import ADDRESS, ThrowAwayRay, throw_away_ray, why_not
from weft.core.launch import Launch, Processes
from weft.core.model import Demand, Job, JobId
from weft.engines.ray.engine import RayEngine
from weft.testing.check_engine import CHECKS, Check, Subject

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]
STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThrowAwayRay]:
    with throw_away_ray("a1:a100:2", "t1:cpu:0") as ray:
        yield ray


def job_of(*command: str) -> Callable[[str, int], Job]:
    def make(name: str, gpus: int) -> Job:
        launch = Launch(command, workdir="/", processes=Processes.PER_GPU)
        return Job(JobId(name), demand=Demand(gpus), launch=launch)

    return make


def engine(state: Path, cluster: ThrowAwayRay) -> RayEngine:
    """One of the same service each time: its runners are kept from test to test."""
    state.mkdir(exist_ok=True)
    (state / "owner").write_text("0123456789ab")
    return RayEngine(state, address=ADDRESS, token=str(cluster.token), keep_nodes=True)


def subject(state: Path, cluster: ThrowAwayRay) -> Subject:
    return Subject(
        make=lambda: engine(state, cluster),
        job=job_of("sh", "-c", "echo hello from rank $RANK of $WORLD_SIZE"),
        endless=job_of("sleep", "1000"),
        failing=job_of("sh", "-c", "echo no such luck >&2; exit 3"),
        stubborn=job_of("sh", "-c", STUBBORN),
        printed="hello from rank",
        patience_s=120.0,
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_ray_keeps_the_contract(check: Check, cluster: ThrowAwayRay, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state", cluster)))
