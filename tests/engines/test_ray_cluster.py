"""Jobs on a real Ray cluster of several nodes, brought up for this file and ended after it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.ray import ADDRESS, ThrowAwayRay, throw_away_ray, why_not
from tests.engines.contract import every_check
from tests.engines.elastic_scenario import train_through_it_all
from weft.engines.ray.engine import RayEngine
from weft.testing.engine_subject import Check, Subject, shell_subject

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


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
        patience_s=120.0,
    )


@pytest.mark.parametrize("check", every_check("an_uneven_gang_is_one"))
def test_ray_keeps_the_contract(check: Check, cluster: ThrowAwayRay, tmp_path: Path) -> None:
    asyncio.run(check(subject(tmp_path / "state", cluster)))


@pytest.mark.slow
def test_a_comparison_over_the_cluster_is_the_same_to_the_byte(cluster: ThrowAwayRay) -> None:
    command = [sys.executable, "-m", "weft", "compare", "tiny-20", "--seeds", "2", "--json"]
    env = {**os.environ, **cluster.environment()}

    here = subprocess.run(command, env=env, capture_output=True, check=True)
    there = subprocess.run([*command, "--on", ADDRESS], env=env, capture_output=True, check=True)

    assert json.loads(here.stdout)["policies"]
    assert there.stdout == here.stdout


@pytest.mark.slow
def test_training_goes_on_through_resizes_a_killed_service_and_a_killed_node(
    cluster: ThrowAwayRay, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    take_up_runners(state)

    train_through_it_all(cluster.engine, state, cluster.kill)
