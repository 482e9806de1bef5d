"""Pilots of tenants: nodes that are held by a tenant's account, for that tenant's jobs alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.engines.elastic_scenario import Service
from tests.waiting import wait_until
from weft.app.engine import build_engine
from weft.core.errors import InvalidConfig
from weft.core.model.job import NodeId
from weft.engines.slurm.pilot import read_pools
from weft.service.responses.answers import Made

ENGINE = "slurm:mode=pilot,nodes=vision:a1/nlp:a2+t1,accounts=vision:vis/nlp:nlp"


def pilots() -> dict[str, str]:
    """The account that each node is held by."""
    lines = subprocess.check_output(["squeue", "-h", "-t", "R", "-o", "%N|%a|%j"], text=True)
    rows = (line.split("|") for line in lines.splitlines())
    return {node: account for node, account, name in rows if name == "weft-pilot"}


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_each_tenant_runs_in_pilots_of_its_own_account(tmp_path: Path) -> None:
    service = Service(tmp_path / "state", ("--engine", ENGINE, "--policy", "fifo"))
    service.start()

    def submit(name: str, tenant: str) -> None:
        command = ["sleep", "1000"]
        job = {"id": name, "gpus": 4, "kinds": ["a100"], "tenant": tenant, "command": command}
        service.client.post(Made, "/jobs", {**job, "workdir": str(tmp_path)})

    def where(name: str) -> list[str]:
        job = service.job(name)
        return [part.node for part in job.allocation or ()] if job.state == "running" else []

    try:
        wait_until(lambda: len(pilots()) == 3, "they are held", 120.0)
        submit("v1", "vision")
        submit("v2", "vision")  # a2 is idle, and nlp's
        submit("n1", "nlp")
        wait_until(lambda: where("v1") and where("n1"), "they run", 120.0)

        assert pilots() == {"a1": "vis", "a2": "nlp", "t1": "nlp"}
        assert where("v1") == ["a1"]
        assert where("n1") == ["a2"]
        assert service.job("v2").state == "pending"
        windows = service.client.get(dict, "/reservations")
        assert "pool:vision" in str(windows)
    finally:
        service.end()


def test_nodes_are_held_for_all_or_for_a_tenant() -> None:
    assert read_pools("a1/a2").tenants == {NodeId("a1"): "", NodeId("a2"): ""}
    pools = {NodeId("a1"): "vision", NodeId("a2"): "vision", NodeId("t1"): "nlp"}
    assert read_pools("vision:a1+a2/nlp:t1").tenants == pools
    assert read_pools("").may_hold(NodeId("any"))
    assert not read_pools("a1").may_hold(NodeId("any"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("nodes=vision:a1/nlp:a1", "'a1' twice"),
        ("nodes=:a1", "nodes has ':a1'"),
        ("nodes=vision:a1,accounts=nlp:nlp", "no pilots of its own"),
        ("nodes=vision:a1,accounts=vision:vis+urgent", "several accounts"),
        ("nodes=vision:a1,partitions=vision:all", "in one partition"),
    ],
)
def test_pools_that_cannot_be_charged_are_refused(options: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=why):
        build_engine(f"slurm:mode=pilot,{options}", state=tmp_path / "state")
