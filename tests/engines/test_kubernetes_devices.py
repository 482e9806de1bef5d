"""What GPUs are called and how nodes are labelled, as a site has it, on a real API server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes import KubernetesCluster, NodeSpec
from weft.core.events.event import Finished
from weft.core.model.job import Allocation, Slice
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
SLICES, AMD = "nvidia.com/mig-1g.5gb", "amd.com/gpu"


@pytest.fixture
def site(kubernetes: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """With a node whose GPU is cut into slices, and one of another maker in a rack."""
    kubernetes.add_node(NodeSpec("m1", "NVIDIA-A100-SXM4-40GB", 3, SLICES), {})
    labels = {"site/gpu": "MI300X", "site/rack": "r7"}
    kubernetes.add_node(NodeSpec("x1", "", 2, AMD), labels)
    yield kubernetes
    for name in ("m1", "x1"):
        kubernetes.remove_node(name)


def test_slices_and_other_makers_gpus_are_kinds_that_jobs_get(
    site: KubernetesCluster, tmp_path: Path
) -> None:
    engine = KubernetesEngine(
        tmp_path / "state",
        image="none",
        kubeconfig=str(site.kubeconfig),
        mounts="/",
        python=sys.executable,
        address="pod",
        device=f"nvidia.com/gpu+{SLICES}+{AMD}",
        kind_label="site/gpu",
        rack_label="site/rack",
    )

    async def life() -> None:
        subject = shell_subject(lambda: engine, where="$NODE_NAME")
        async with session(subject) as it:
            nodes = {str(node.id): node for node in await it.engine.nodes()}
            assert {name: (node.kind, node.gpus) for name, node in nodes.items()} == {
                "a1": ("a100", 2),
                "m1": ("a100-1g.5gb", 3),
                "t1": ("t4", 2),
                "t2": ("t4", 2),
                "x1": ("mi300x", 2),
            }
            assert nodes["x1"].rack == "r7"
            for at, node in enumerate((nodes["m1"], nodes["x1"])):
                job = shell_job(f"on-{at}", 2, "true")
                await it.engine.start(job, Allocation((Slice(node.id, (0, 1)),)), 1)
                await it.told(Finished)

    asyncio.run(life())

    pods = site.api.get("/api/v1/namespaces/weft/pods")["items"]
    asked = {
        pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods
    }
    assert asked["m1"][SLICES] == "2"
    assert asked["x1"][AMD] == "2"
