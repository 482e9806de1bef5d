"""GPUs that the cluster's own scheduler gives: on a chosen node, and claimed from a driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.clusters.kubernetes import CLAIMS, KubernetesCluster, release, why_no_scheduler
from tests.engines.contract import engine_of_pods
from weft.core.errors import EngineError
from weft.core.events.event import Resized, Started, Stopped
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.engine_resize import TRAIN, begin_training, change_ranks, stop_training, train_on
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/weft/pods"
DRA = "/apis/resource.k8s.io/v1"
CLAIMED = f"{DRA}/namespaces/weft"
DRIVER = "gpu.nvidia.com"
Given = dict[str, list[tuple[str, str]]]  # devices by node


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
    return engine_of_pods(cluster, state, place="selector", device=device)


def run_a_gang(cluster: KubernetesCluster, made: KubernetesEngine) -> tuple[list[Object], Given]:
    """Its pods as it runs, and what was allocated to each."""

    async def life() -> tuple[list[Object], Given]:
        subject = shell_subject(lambda: made, where="$NODE_NAME")
        async with session(subject) as it:
            job = shell_job("net", 3, "exec sleep 1000")
            await it.engine.start(job, await it.over(2, 1), 1)
            await it.told(Started)
            pods: list[Object] = cluster.api.get(PODS)["items"]
            given = {pod["spec"]["nodeName"]: allocated(cluster, pod) for pod in pods}
            await it.engine.stop(job.id, 1, 5.0)
            await it.told(Stopped)
            for pod in pods:
                cluster.api.delete(f"{PODS}/{pod['metadata']['name']}", grace_s=0)
            return pods, given

    return asyncio.run(life())


def allocated(cluster: KubernetesCluster, pod: Object) -> list[tuple[str, str]]:
    """Driver and pool of each device that its claims have; none for a pod without claims."""
    devices = []
    for used in pod["status"].get("resourceClaimStatuses") or ():
        claim = cluster.api.get(f"{CLAIMED}/resourceclaims/{used['resourceClaimName']}")
        results = claim["status"]["allocation"]["devices"]["results"]
        devices += [(str(entry["driver"]), str(entry["pool"])) for entry in results]
    return devices


def test_the_clusters_scheduler_binds_pods_to_the_nodes_that_weft_chose(
    scheduled: KubernetesCluster, tmp_path: Path
) -> None:
    made = engine(scheduled, tmp_path / "state", "nvidia.com/gpu")

    pods, given = run_a_gang(scheduled, made)

    chosen = [pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in pods]
    assert sorted(chosen) == ["t1", "t2"]
    assert [pod["spec"]["nodeName"] for pod in pods] == chosen
    assert given == {"t1": [], "t2": []}


def test_pods_claim_devices_that_a_driver_published_and_the_scheduler_allocates(
    published: KubernetesCluster, tmp_path: Path
) -> None:
    made = engine(published, tmp_path / "state", f"claim/{DRIVER}")

    _, given = run_a_gang(published, made)

    templates = published.api.get(f"{CLAIMED}/resourceclaimtemplates")["items"]
    named = [entry["metadata"]["name"] for entry in templates]
    assert named == ["weft-gpu-nvidia-com-1", "weft-gpu-nvidia-com-2"]
    assert sorted(map(len, given.values())) == [1, 2]
    for node, devices in given.items():
        assert {*devices} == {(DRIVER, node)}


def test_a_training_grows_and_shrinks_by_the_devices_that_its_pods_claim(
    published: KubernetesCluster, tmp_path: Path
) -> None:
    made = engine(published, tmp_path / "state", f"claim/{DRIVER}")

    def given() -> Given:
        pods = published.api.get(PODS)["items"]
        running = [pod for pod in pods if pod["status"]["phase"] == "Running"]
        return {pod["spec"]["nodeName"]: allocated(published, pod) for pod in running}

    async def life() -> None:
        subject = shell_subject(lambda: made, where="$NODE_NAME")
        async with session(subject) as it:
            both = await it.over(1, 1)
            first = replace(both, slices=both.slices[:1])
            job = await begin_training(it, shell_job("net", 1, TRAIN), first)
            assert given() == {"t1": [(DRIVER, "t1")]}

            assert isinstance(await change_ranks(it, job, both, 1), Resized)
            await train_on(it, job, 2)
            assert given() == {"t1": [(DRIVER, "t1")], "t2": [(DRIVER, "t2")]}

            assert isinstance(await change_ranks(it, job, first, 2), Resized)
            await train_on(it, job, 1)
            await it.becomes(lambda: given() == {"t1": [(DRIVER, "t1")]}, "t2 is given back")
            await stop_training(it, job)

    asyncio.run(life())


def test_a_cluster_without_claims_says_so(kubernetes: KubernetesCluster, tmp_path: Path) -> None:
    if release() >= CLAIMS:
        pytest.skip("this cluster has them")

    with pytest.raises(EngineError, match=r"(?s)cannot be claimed here.*1\.34"):
        asyncio.run(engine(kubernetes, tmp_path / "state", f"claim/{DRIVER}").nodes())
