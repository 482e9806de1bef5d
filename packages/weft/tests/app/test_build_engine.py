"""Engines are built from what their classes declare."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from weft.app.engine import build_engine, build_real_engine, colocate_on
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import Cluster
from weft.core.model.job import Allocation, Job, JobId, NodeId, Slice
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import Resident
from weft.core.spec.registry import find, names

# What some must be told besides where to keep things.
TOLD = {"kubernetes": "kubernetes:image=weft"}
KUBECONFIG = """
current-context: here
contexts: [{name: here, context: {cluster: lab, user: me}}]
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: me, user: {token: secret}}]
"""


@pytest.mark.parametrize("name", names("engine"))
def test_every_engine_says_what_it_wants_and_supports(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(find("engine", name).wants, Wants)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))

    engine = build_engine(TOLD.get(name, name), state=tmp_path)

    assert engine.supports & ~Controls(sum(flag.value for flag in Controls)) == Controls.NOTHING
    assert engine.supports.value == sum(f.value for f in Controls if f in engine.supports)
    assert engine.sharing in ("timeslicing", "mps")
    assert engine.health.ok


def test_an_engine_that_wants_a_folder_is_not_built_without_one() -> None:
    with pytest.raises(InvalidConfig, match="'local' needs a folder"):
        build_engine("local")


def test_nothing_is_measured_where_nothing_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="runs no processes"):
        build_real_engine("simulated", tmp_path)


def test_sharing_of_simulated_devices_is_one_of_two() -> None:
    with pytest.raises(InvalidConfig, match="sharing='magic' is not one of its choices"):
        build_engine("simulated:sharing=magic")


def test_simulated_jobs_feel_the_host_they_are_given() -> None:
    engine = build_engine("simulated:cluster=1x4:v100")
    cluster = Cluster(tuple(asyncio.run(engine.nodes())))
    together = colocate_on(engine, cluster, "")
    job = Job(JobId("a"), model="alexnet")

    def speed(cpus: float) -> float:
        on = Allocation((Slice(NodeId("v100-0"), (0,), cpus, 64.0),))
        return together.speed(Resident(job, on, "v100"), ())

    assert speed(1.0) < 0.5 * speed(8.0)
    assert speed(8.0) == pytest.approx(1.0)
