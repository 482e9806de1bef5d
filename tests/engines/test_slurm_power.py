"""Nodes that Slurm switches off to save power: they count as usable, and jobs wake them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.slurm import SlurmCluster, missing
from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.service.responses.answers import Made, Nodes

# A node is off while its slurmd does not run. Slurm ends what a program leaves in its session, and
# waits until the node has booted in a later second than it was switched on: `-b` says that it has,
# and no machine boots at once.
OFF = """#!/bin/sh
for node in $(scontrol show hostnames "$1"); do
    echo "off $node" >>{folder}/power
    kill -9 "$(cat {folder}/slurmd.$node.pid)" && rm -f {folder}/slurmd.$node.pid
done
"""
ON = """#!/bin/sh
for node in $(scontrol show hostnames "$1"); do
    echo "on $node" >>{folder}/power
    [ -e {folder}/broken.$node ] && continue
    boot="sleep 2; exec /usr/sbin/slurmd -b -f {folder}/slurm.conf -N $node"
    setsid sh -c "$boot" </dev/null >/dev/null 2>&1 &
done
"""
SAVING = """SuspendProgram={folder}/off
ResumeProgram={folder}/on
SuspendTime=3600
SuspendTimeout=5
ResumeTimeout=20
"""


@pytest.fixture
def saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """A cluster whose T4 nodes are switched off."""
    if lacking := missing():
        pytest.skip(lacking)
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in (("on", ON), ("off", OFF)):
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    cluster = SlurmCluster(folder, more=SAVING.format(folder=folder))
    cluster.use_in(monkeypatch)
    cluster.up()
    update = ["scontrol", "update", "nodename=t[1-2]", "state=power_down"]
    subprocess.run(update, check=True)
    wait_until(lambda: states("t1") == states("t2") == "idle~", "they are off")
    yield cluster
    cluster.clear()
    cluster.down()


def states(node: str) -> str:
    command = ["sinfo", "-h", "-n", node, "-o", "%T"]
    return subprocess.check_output(command, env=os.environ, text=True).strip()


def states_in_weft(service: Service) -> dict[str, str]:
    return {node.id: node.state for node in service.client.get(Nodes, "/nodes").nodes}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_job_runs_on_a_node_that_slurm_switches_on(
    mode: str, saving: SlurmCluster, tmp_path: Path
) -> None:
    service = Service(tmp_path / "state", ("--engine", f"slurm:mode={mode}", "--policy", "fifo"))
    service.start()
    try:
        wait_until(lambda: {*states_in_weft(service).values()} == {"up"}, "all are usable", 150.0)
        job = {"id": "early", "gpus": 2, "kinds": ["t4"], "command": ["hostname"]}
        service.client.post(Made, "/jobs", {**job, "workdir": str(tmp_path)})
        wait_until(lambda: service.job("early").state == "succeeded", "it has run", 150.0)

        assert service.job("early").attempt == 1
        power = (saving.folder / "power").read_text().splitlines()
        assert sorted(power[:2]) == ["off t1", "off t2"]
        woken = sorted(power[2:])
        assert woken in (["on t1"], ["on t2"]) if mode == "native" else woken == ["on t1", "on t2"]
    finally:
        service.end()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["native", "pilot"])
def test_a_gang_runs_on_nodes_that_slurm_switches_on(
    mode: str, saving: SlurmCluster, tmp_path: Path
) -> None:
    service = Service(tmp_path / "state", ("--engine", f"slurm:mode={mode}", "--policy", "fifo"))
    service.start()
    try:
        wait_until(lambda: {*states_in_weft(service).values()} == {"up"}, "all are usable")
        gang = {"nodes": 2, "gpus": 8, "processes": 1, "workdir": str(tmp_path)}
        asleep = ["sh", "-c", "echo $SLURMD_NODENAME >>off; sleep 3"]
        service.client.post(
            Made, "/jobs", {**gang, "id": "off", "kinds": ["t4"], "command": asleep}
        )
        wait_until(lambda: service.job("off").state == "succeeded", "it has run on both")

        assert service.job("off").attempt == 1
        assert sorted((tmp_path / "off").read_text().split()) == ["t1", "t2"]
        power = (saving.folder / "power").read_text().splitlines()
        assert sorted(power) == ["off t1", "off t2", "on t1", "on t2"]
    finally:
        service.end()


@pytest.mark.slow
def test_a_gang_goes_on_elsewhere_if_one_of_its_nodes_cannot_be_switched_on(
    saving: SlurmCluster, tmp_path: Path
) -> None:
    (saving.folder / "broken.t1").touch()
    service = Service(tmp_path / "state", ("--engine", "slurm", "--policy", "fifo"))
    service.start()
    client, taken = service.client, ("one", "two")
    try:
        for name in taken:
            held = {"id": name, "gpus": 4, "kinds": ["a100"], "command": ["sleep", "1000"]}
            client.post(Made, "/jobs", {**held, "workdir": str(tmp_path)})
        wait_until(lambda: {service.job(name).state for name in taken} == {"running"}, "A100s")
        gang = {"id": "gang", "nodes": 2, "gpus": 8, "processes": 1, "workdir": str(tmp_path)}
        client.post(Made, "/jobs", {**gang, "command": ["sh", "-c", "echo $SLURMD_NODENAME >>ran"]})
        wait_until(lambda: states_in_weft(service)["t1"] == "down", "t1 does not come")
        for name in taken:
            client.delete(f"/jobs/{name}")
        wait_until(lambda: service.job("gang").state == "succeeded", "it has run")

        assert service.job("gang").failures == 0
        assert sorted((tmp_path / "ran").read_text().split()) == ["a1", "a2"]
    finally:
        service.end()


@pytest.mark.slow
def test_a_job_goes_on_elsewhere_if_its_node_cannot_be_switched_on(
    saving: SlurmCluster, tmp_path: Path
) -> None:
    (saving.folder / "broken.t1").touch()
    service = Service(tmp_path / "state", ("--engine", "slurm", "--policy", "fifo"))
    service.start()
    try:
        job = {"id": "early", "gpus": 2, "kinds": ["t4"], "command": ["hostname"]}
        service.client.post(Made, "/jobs", {**job, "workdir": str(tmp_path)})
        wait_until(lambda: service.job("early").state == "succeeded", "it has run", 150.0)

        assert service.job("early").failures == 0
        assert "on t2" in (saving.folder / "power").read_text()
    finally:
        service.end()
