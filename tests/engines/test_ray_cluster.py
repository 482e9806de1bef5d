"""Jobs on a real Ray cluster of several nodes, brought up for this file and ended after it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.ray import ADDRESS, ThrowAwayRay, throw_away_ray, why_not
from tests.engines.contract import every_check, make_image
from tests.engines.elastic_scenario import train_through_it_all
from weft.core.events.event import Event, Finished
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.engines.ray.engine import RayEngine
from weft.testing.engine_sessions import a_gang_runs_in_its_image
from weft.testing.engine_subject import Check, Subject, run_script, session, shell_subject

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

DRIVE = """
import os, ray
ray.init()

@ray.remote(num_gpus=1)
def square(x):
    return x * x

total = sum(ray.get([square.remote(x) for x in range(4)]))
gpus = ray.cluster_resources()["GPU"]
workers = os.environ["WEFT_WORKERS"]
print(total, "on", len(ray.nodes()), "nodes with", gpus, "GPUs for", workers, "workers")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThrowAwayRay]:
    with throw_away_ray("a1:a100:2", "a2:a100:2") as ray:
        yield ray


def engine(state: Path, cluster: ThrowAwayRay) -> RayEngine:
    """One of the same service each time: its runners are kept from test to test."""
    take_up_runners(state)
    token = str(cluster.token)
    return RayEngine(state, address=ADDRESS, token=token, keep_nodes=True, uses="labelled")


def take_up_runners(state: Path) -> None:
    state.mkdir(exist_ok=True)
    (state / "owner").write_text("0123456789ab")


def subject(state: Path, cluster: ThrowAwayRay) -> Subject:
    return shell_subject(
        lambda: engine(state, cluster),
        where="$HOSTNAME",
        exact=True,
        kill_node=cluster.kill,
        restore_node=cluster.restore,
        kill_controller=cluster.stop_controller,
        restore_controller=cluster.start_controller,
    )


@pytest.mark.parametrize("check", every_check("an_uneven_gang_is_one"))
def test_ray_keeps_the_contract(check: Check, cluster: ThrowAwayRay, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state", cluster)))


@pytest.mark.slow
def test_a_gang_on_ray_runs_in_an_image_with_volumes_and_a_shell(
    cluster: ThrowAwayRay, tmp_path: Path
) -> None:
    image = make_image(tmp_path)

    asyncio.run(
        a_gang_runs_in_its_image(replace(subject(tmp_path / "state", cluster), image=image))
    )


@pytest.mark.slow
def test_a_job_drives_a_ray_of_its_own_on_its_gpus_alone(
    cluster: ThrowAwayRay, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "weft.node.ray_job", sys.executable, "-c", DRIVE)
    job = Job(JobId("driven"), demand=Demand(2), launch=Launch(command, workdir="/"))
    patient = replace(subject(tmp_path / "state", cluster), patience_s=600.0)

    async def run() -> tuple[Event, dict[int, str]]:
        async with session(patient) as it:
            return await run_script(it, job, await it.over(1, 1))

    end, printed = asyncio.run(run())

    assert end == Finished(job.id, 1), printed
    assert "14 on 2 nodes with 2.0 GPUs for 2 workers" in printed[0]


@pytest.mark.slow
def test_a_comparison_over_the_cluster_is_the_same_to_the_byte(cluster: ThrowAwayRay) -> None:
    command = [sys.executable, "-m", "weft", "compare", "tiny-20", "--seeds", "2", "--json"]
    env = {**os.environ, **cluster.environment()}

    here = subprocess.run(command, env=env, capture_output=True, check=True)
    there = subprocess.run([*command, "--on", ADDRESS], env=env, capture_output=True, check=True)

    assert json.loads(here.stdout)["policies"]
    assert there.stdout == here.stdout


@pytest.mark.slow
def test_training_on_ray_goes_on_through_resizes_a_killed_service_and_a_killed_node(
    cluster: ThrowAwayRay, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    take_up_runners(state)

    train_through_it_all(cluster.engine, state, cluster.kill)
