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
from weft.service.responses.admin import QuotaAnswer
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


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_arrays_run_in_the_pilots_of_their_accounts_within_quotas(tmp_path: Path) -> None:
    """Vision has four GPUs in a pool, of which its quota allows two; nlp has no quota."""
    service = Service(tmp_path / "state", ("--engine", ENGINE, "--policy", "fifo"))
    service.start()
    gate = tmp_path / "gate"

    def submit(tenant: str, count: int) -> list[str]:
        run = f"echo ${{n}}; until test -e {gate}; do sleep 0.2; done"
        job = {"id": tenant, "gpus": 1, "tenant": tenant, "command": ["sh", "-c", run]}
        sweep = {"list": [{"n": n} for n in range(count)]}
        return service.client.post(
            Made, "/jobs", {**job, "sweep": sweep, "workdir": str(tmp_path)}
        ).jobs

    def where(jobs: list[str]) -> list[str]:
        parts = (service.job(job).allocation or () for job in jobs if is_running(job))
        return sorted(part.node for allocation in parts for part in allocation)

    def is_running(job: str) -> bool:
        return service.job(job).state == "running"

    try:
        wait_until(lambda: len(pilots()) == 3, "they are held")
        service.client.put(QuotaAnswer, "/quotas", {"limits": {"vision": 2}})
        vision, nlp = submit("vision", 6), submit("nlp", 8)
        wait_until(lambda: len(where(vision)) == 2 and len(where(nlp)) == 8, "they run")

        assert where(vision) == ["a1"] * 2
        assert where(nlp) == ["a2"] * 4 + ["t1"] * 4
        waits = [service.job(job).reason for job in vision if not is_running(job)]
        assert len(waits) == 4 and all("quota" in reason for reason in waits)

        service.client.put(QuotaAnswer, "/quotas", {"limits": {}})
        wait_until(lambda: len(where(vision)) == 4, "its pool is full")
        assert where(vision) == ["a1"] * 4
        gate.touch()
        ended = [*vision, *nlp]
        wait_until(lambda: {service.job(job).state for job in ended} == {"succeeded"}, "all ended")
        assert {service.job(job).attempt for job in ended} == {1}
        assert pilots() == {"a1": "vis", "a2": "nlp", "t1": "nlp"}
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
