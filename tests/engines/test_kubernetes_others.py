"""Pods and Jobs of other schedulers beside Weft's, on a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters.kubernetes import KubernetesCluster, release
from tests.engines.contract import engine_of_pods
from weft.core.events.event import Failed, Finished, StartFailed
from weft.core.model.job import Allocation, NodeId, Slice
from weft.engines.kubernetes.api import ApiError, Object
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.engine_subject import session, shell_job, shell_subject

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/weft/pods"
JOBS = "/apis/batch/v1/namespaces/weft/jobs"
QUEUE = "kueue.x-k8s.io/queue-name"
GATES, SUSPENDS = 27, 24  # the releases from which on pods have gates, and Jobs are suspended
CONTAINER = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    meta = {"name": name, "labels": labels or {}}
    body = {"containers": [CONTAINER], "restartPolicy": "Never", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def engine(cluster: KubernetesCluster, state: Path) -> KubernetesEngine:
    return engine_of_pods(cluster, state)


@pytest.fixture
def others(kubernetes: KubernetesCluster) -> Iterator[dict[str, Object]]:
    """What Volcano, KAI and Kueue have in a namespace before they let it run, as it is made."""
    made = [
        kubernetes.api.create(PODS, pod("of-volcano", schedulerName="volcano")),
        kubernetes.api.create(PODS, pod("of-kai", schedulerName="kai-scheduler")),
        kubernetes.api.create(PODS, pod("of-kueue", {QUEUE: "team"})),
    ]
    if release() >= SUSPENDS:
        template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
        meta = {"name": "suspended", "labels": {QUEUE: "team"}}
        spec = {"suspend": True, "template": template}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
        made.append(kubernetes.api.create(JOBS, body))
    yield {thing["metadata"]["name"]: thing for thing in made}
    for thing in made:
        path = JOBS if thing["kind"] == "Job" else PODS
        kubernetes.api.delete(f"{path}/{thing['metadata']['name']}", grace_s=0)


def test_weft_runs_its_own_pods_and_touches_no_others(
    kubernetes: KubernetesCluster, others: dict[str, Object], tmp_path: Path
) -> None:
    made = engine(kubernetes, tmp_path / "state")

    async def life() -> list[Object]:
        subject = shell_subject(lambda: made, where="$NODE_NAME")
        async with session(subject) as it:
            await it.engine.start(shell_job("own", 2, "true"), await it.over(1, 1), 1)
            end = await it.told((Failed, Finished, StartFailed))
            assert isinstance(end, Finished), end
            listed: list[Object] = kubernetes.api.get(PODS)["items"]
            return listed

    listed = asyncio.run(life())

    ours = [thing for thing in listed if thing["metadata"]["name"] not in others]
    assert len(ours) == 2
    for thing in ours:
        assert thing["spec"]["schedulerName"] == "default-scheduler"
        assert not [name for name in thing["metadata"]["labels"] if "kueue" in name]
        assert thing["spec"]["nodeName"] in kubernetes.nodes
    for name, before in others.items():
        path = JOBS if before["kind"] == "Job" else PODS
        assert kubernetes.api.get(f"{path}/{name}") == before


def test_gpus_that_others_hold_are_taken_once_a_kubelet_has_refused_a_pod(
    kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "m", "image": "none", "command": ["sleep", "1000"], "resources": resources}
    kubernetes.api.create(PODS, pod("of-others", nodeName="t1", containers=[container]))
    made = engine(kubernetes, tmp_path / "state")

    async def life() -> None:
        subject = shell_subject(lambda: made, where="$NODE_NAME")
        async with session(subject) as it:
            assert it.engine.health.taken == {}
            whole = Allocation((Slice(NodeId("t1"), (0, 1)),))
            await it.engine.start(shell_job("second", 2, "true"), whole, 1)
            failed = await it.told((Failed, StartFailed))
            assert failed.lost
            assert "nvidia.com/gpu" in failed.reason
            assert it.engine.health.taken == {"t1": "~t1:1"}

    try:
        asyncio.run(life())
    finally:
        kubernetes.api.delete(f"{PODS}/of-others", grace_s=1)


def test_a_pod_of_wefts_that_kueue_would_hold_back_is_refused_and_not_run_unseen(
    kubernetes: KubernetesCluster,
) -> None:
    """Why Kueue must leave Weft's namespaces alone: what its webhook adds is refused at once."""
    if release() < GATES:
        pytest.skip("pods have no scheduling gates before 1.27")
    gates = [{"name": "kueue.x-k8s.io/admission"}]

    with pytest.raises(ApiError, match="nodeName"):
        kubernetes.api.create(PODS, pod("gated", nodeName="t1", schedulingGates=gates))

    assert "gated" not in json.dumps(kubernetes.api.get(PODS))
