"""GPUs that the cluster's own scheduler gives: on a chosen node, and claimed from a driver."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.kubernetes import CLAIMS, KubernetesCluster, release, why_no_scheduler
from weft.core.errors import EngineError
from weft.core.events.event import Finished
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/weft/pods"
DRA = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"


@pytest.fixture
def scheduled(kubernetes: KubernetesCluster) -> Iterator[KubernetesCluster]:
    if why := why_no_scheduler():
        pytest.skip(why)
    kubernetes.start_scheduler()
    yield kubernetes
    kubernetes.stop_scheduler()


@pytest.fixture
def published(scheduled: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """As a driver publishes them: three GPUs of t1 and two of t2."""
    if release() < CLAIMS:
        pytest.skip(f"devices are not claimed before 1.{CLAIMS}")
    chooses = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    body = {"metadata": {"name": DRIVER}, "spec": {"selectors": chooses}}
    scheduled.api.create(f"{DRA}/deviceclasses", body)
    for node, count in (("t1", 3), ("t2", 2)):
        scheduled.api.create(f"{DRA}/resourceslices", slice_of(node, count))
    yield scheduled
    scheduled.api.delete(f"{DRA}/deviceclasses/{DRIVER}")
    for node in ("t1", "t2"):
        scheduled.api.delete(f"{DRA}/resourceslices/{node}")


def slice_of(node: str, count: int) -> Object:
    attributes = {"type": {"string": "gpu"}, "productName": {"string": "NVIDIA H200"}}
    devices = [{"name": f"gpu-{at}", "attributes": attributes} for at in range(count)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": node}, "spec": spec}


def engine(cluster: KubernetesCluster, state: Path, device: str) -> KubernetesEngine:
    return KubernetesEngine(
        state,
        image="none",
        kubeconfig=str(cluster.kubeconfig),
        mounts="/",
        python=sys.executable,
        address="pod",
        place="selector",
        device=device,
    )


def run_a_gang(cluster: KubernetesCluster, made: KubernetesEngine) -> list[Object]:
    """Its pods, once it has ended."""

    async def life() -> list[Object]:
        subject = shell_subject(lambda: made, where="$NODE_NAME", patience_s=400.0)
        async with session(subject) as it:
            await it.engine.start(shell_job("net", 3, "true"), await it.over(2, 1), 1)
            await it.told(Finished)
            pods: list[Object] = cluster.api.get(PODS)["items"]
            for pod in pods:
                cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", grace_s=0)
            return pods

    return asyncio.run(life())


def test_the_clusters_scheduler_binds_pods_to_the_nodes_that_weft_chose(
    scheduled: KubernetesCluster, tmp_path: Path
) -> None:
    pods = run_a_gang(scheduled, engine(scheduled, tmp_path / "state", "nvidia.com/gpu"))

    chosen = [pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in pods]
    assert sorted(chosen) == ["t1", "t2"]
    assert [pod["spec"]["nodeName"] for pod in pods] == chosen


def test_pods_claim_devices_that_a_driver_published_and_the_scheduler_allocates(
    published: KubernetesCluster, tmp_path: Path
) -> None:
    made = engine(published, tmp_path / "state", f"claim/{DRIVER}")

    pods = run_a_gang(published, made)

    templates = published.api.get(f"{DRA}/namespaces/weft/resourceclaimtemplates")["items"]
    named = [one["metadata"]["name"] for one in templates]
    assert named == ["weft-gpu-nvidia-com-1", "weft-gpu-nvidia-com-2"]
    given = {}
    for pod in pods:
        (used,) = pod["status"]["resourceClaimStatuses"]
        path = f"{DRA}/namespaces/weft/resourceclaims/{used['resourceClaimName']}"
        results = published.api.get(path)["status"]["allocation"]["devices"]["results"]
        given[pod["spec"]["nodeName"]] = [(one["driver"], one["pool"]) for one in results]
    assert sorted(map(len, given.values())) == [1, 2]
    for node, devices in given.items():
        assert {*devices} == {(DRIVER, node)}


def test_a_cluster_without_claims_says_so(kubernetes: KubernetesCluster, tmp_path: Path) -> None:
    if release() >= CLAIMS:
        pytest.skip("this cluster has them")

    with pytest.raises(EngineError, match=r"(?s)cannot be claimed here.*1\.34"):
        asyncio.run(engine(kubernetes, tmp_path / "state", f"claim/{DRIVER}").nodes())
