"""Nodes that an administrator drained in Slurm are shown as drained, with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.service.responses.answers import NodeAnswer, Nodes


def update(node: str, *change: str) -> None:
    subprocess.run(["scontrol", "update", f"nodename={node}", *change], check=True)


@pytest.mark.usefixtures("slurm")
def test_a_drained_node_is_shown_with_the_reason_and_used_again_later(tmp_path: Path) -> None:
    update("t1", "state=drain", "reason=fan broken")
    service = Service(tmp_path / "state", ("--engine", "slurm", "--policy", "fifo"))
    service.start()

    def node(name: str) -> NodeAnswer:
        nodes = service.client.get(Nodes, "/nodes").nodes
        return next(node for node in nodes if node.id == name)

    try:
        assert (node("t1").state, node("t1").reason) == ("drained", "fan broken")
        assert (node("t2").state, node("t2").reason) == ("up", "")

        update("t2", "state=drain", "reason=new | memory")
        wait_until(lambda: node("t2").state != "up", "t2 is out of use")
        assert (node("t2").state, node("t2").reason) == ("drained", "new | memory")

        for name in ("t1", "t2"):
            update(name, "state=resume")
            wait_until(lambda name=name: node(name).state == "up", f"{name} is used again")  # type: ignore[misc]
            assert node(name).reason == ""

        update("t2", "state=down", "reason=no power")
        wait_until(lambda: node("t2").state != "up", "t2 is out of use")
        assert (node("t2").state, node("t2").reason) == ("down", "no power")
    finally:
        service.end()
