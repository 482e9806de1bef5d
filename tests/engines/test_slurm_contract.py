"""Slurm, both ways, on four nodes of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.slurm import NODES, SlurmCluster
from tests.engines.contract import every_check, make_image
from tests.engines.elastic_scenario import train_through_it_all
from weft.core.events.event import Failed, Started
from weft.engines.slurm.engine import SlurmEngine
from weft.testing.engine_sessions import a_gang_runs_in_its_image
from weft.testing.engine_subject import Check, Subject, session, shell_job, shell_subject
from weft.wire.attempt import CLAIM, folder_of


def subject(cluster: SlurmCluster, state: Path, mode: str) -> Subject:
    return shell_subject(
        lambda: SlurmEngine(state, mode=mode),
        where="$SLURMD_NODENAME",
        exact=mode == "pilot",
        kill_node=cluster.kill_node,
        restore_node=cluster.start_node,
        kill_controller=cluster.kill_controller,
        restore_controller=cluster.start_controller,
    )


@pytest.mark.parametrize("mode", ["native", "pilot"])
@pytest.mark.parametrize("check", every_check("jobs_of_any_name_run", "running_jobs_are_adopted"))
def test_slurm_keeps_the_contract(
    check: Check, mode: str, slurm: SlurmCluster, tmp_path: Path
) -> None:
    asyncio.run(check(subject(slurm, tmp_path / "state", mode)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_gang_on_slurm_runs_in_an_image_with_volumes_and_a_shell(
    mode: str, slurm: SlurmCluster, tmp_path: Path
) -> None:
    image = make_image(tmp_path)
    it = replace(subject(slurm, tmp_path / "state", mode), image=image)

    asyncio.run(a_gang_runs_in_its_image(it))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_training_goes_on_through_resizes_a_killed_service_and_a_lost_node(
    mode: str, slurm: SlurmCluster, tmp_path: Path
) -> None:
    try:
        train_through_it_all(f"slurm:mode={mode}", tmp_path / "state", slurm.kill_node)
    finally:
        for node in NODES:
            slurm.start_node(node)


@pytest.mark.slow
def test_how_an_agent_died_is_told_in_slurms_words(slurm: SlurmCluster, tmp_path: Path) -> None:
    async def run() -> Failed:
        async with session(subject(slurm, tmp_path / "state", "native")) as it:
            job = shell_job("orphaned", 1, "exec sleep 1000")
            await it.start(job)
            assert await it.next() == Started(job.id, 1)
            (claim,) = folder_of(tmp_path / "state", job.id, 1).rglob(CLAIM)
            os.kill(json.loads(claim.read_text())["pid"], signal.SIGKILL)
            failed: Failed = await it.told(Failed)
            return failed

    failed = asyncio.run(run())

    assert failed.lost
    assert failed.agent_died
    assert "signal 9" in failed.reason
