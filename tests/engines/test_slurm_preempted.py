"""Weft in the holes of a partition whose jobs others may preempt."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import SlurmCluster, missing
from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.engines.fleet.port import AttemptPhase
from weft.engines.slurm.answers import SlurmJob, observe_attempt
from weft.service.responses.answers import Made

PREEMPTION = """PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10"""


@pytest.fixture
def preempting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    if lacking := missing():
        pytest.skip(lacking)
    cluster = SlurmCluster(tmp_path / "slurm", more=PREEMPTION)
    cluster.use_in(monkeypatch)
    cluster.up()
    yield cluster
    cluster.clear()
    cluster.down()


@pytest.mark.slow
@pytest.mark.usefixtures("preempting")
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_preempted_job_goes_on_elsewhere_and_has_not_failed(tmp_path: Path, mode: str) -> None:
    engine = f"slurm:mode={mode},partition=all"
    service = Service(tmp_path / "state", ("--engine", engine, "--policy", "fifo"))
    service.start()

    def where() -> set[str]:
        job = service.job("victim")
        running = job.state == "running"
        return {part.node for part in job.allocation or () if running}

    urgent = ["sbatch", "--parsable", "-p", "urgent", "-N", "2", "-w", "a1,a2", "--gres=gpu:4"]
    try:
        command = ["sh", "-c", "echo again >> lives; exec sleep 1000"]
        job = {"id": "victim", "gpus": 2, "command": command, "workdir": str(tmp_path)}
        service.client.post(Made, "/jobs", {**job, "kinds": ["a100", "t4"]})
        wait_until(lambda: service.job("victim").state == "running", "it runs")
        (first,) = where()
        others = {"a": "a1,a2", "t": "t1,t2"}[first[0]]
        urgent[urgent.index("a1,a2")] = others

        subprocess.run([*urgent, "-o", os.devnull, "--wrap", "sleep 1000"], check=True)

        wait_until(lambda: where() - {first}, "it goes on elsewhere")
        wait_until(lambda: (tmp_path / "lives").read_text().count("again") == 2, "it runs again")
        now = service.job("victim")
        assert now.attempt >= 2
        assert now.failures == 0
    finally:
        service.end()


def test_a_preempted_job_was_taken_away() -> None:
    seen = observe_attempt([SlurmJob("1", "PREEMPTED", "", "a1")])

    assert seen.phase is AttemptPhase.LOST
    assert "preempted" in seen.reason
