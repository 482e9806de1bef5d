"""`kubectl drain` on a real API server: jobs save and leave first, whatever it evicts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clusters.kubernetes import KubernetesCluster, release
from tests.engines.elastic_scenario import Service, running_where
from tests.house.test_helm_chart import objects
from tests.waiting import wait_until
from weft.engines.kubernetes.api import ApiServerUnreachable
from weft.service.responses.answers import Made

pytestmark = pytest.mark.slow
BUDGETS = 21  # the release from which on the chart's PodDisruptionBudget is known
# Says that it was asked to leave, and takes a moment for it.
SAVES = 'trap "sleep 2; echo saved >> $0; exit 0" TERM; while :; do sleep 0.1; done'


@pytest.fixture
def budget(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[None]:
    """The chart's own."""
    made = objects({}, tmp_path)["PodDisruptionBudget/weft-jobs"]
    made["metadata"]["namespace"] = "weft"
    if release() < BUDGETS:
        made["apiVersion"] = "policy/v1beta1"
    (tmp_path / "budget.yaml").write_text(yaml.safe_dump(made))
    kubernetes.kubectl("apply", "-f", str(tmp_path / "budget.yaml"))
    yield
    kubernetes.kubectl("-n", "weft", "delete", "pdb", "weft-jobs")


@pytest.mark.usefixtures("budget")
def test_a_drain_waits_until_jobs_have_saved_and_left(
    kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    options = f"kubeconfig={kubernetes.kubeconfig},image=none,mounts=/,address=pod"
    engine = f"kubernetes:{options},python={sys.executable}"
    service = Service(tmp_path / "state", ("--engine", engine, "--policy", "fifo"))
    service.start()
    drained = ""
    try:
        command = ["sh", "-c", SAVES, str(tmp_path / "saved")]
        body = {"command": command, "gpus": 2, "kinds": ["t4"], "workdir": str(tmp_path)}
        job = service.client.post(Made, "/jobs", body).id
        wait_until(lambda: bool(running_where(service.job(job))), "it runs")
        (drained,) = running_where(service.job(job))
        pods = running_pods(kubernetes, drained)

        with pytest.raises(ApiServerUnreachable, match="disruption budget"):  # 429: try again later
            evict(kubernetes, pods[0])
        assert not (tmp_path / "saved").exists()
        words = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s")
        printed = kubernetes.kubectl("drain", drained, *words)

        assert "drained" in printed or "evicted" in printed
        assert (tmp_path / "saved").read_text() == "saved\n"
        assert not running_pods(kubernetes, drained)
        wait_until(lambda: bool(running_where(service.job(job))), "it runs elsewhere")
        assert drained not in running_where(service.job(job))
        assert service.job(job).attempt == 2
        service.client.delete(f"/jobs/{job}")
        nodes = kubernetes.nodes
        wait_until(lambda: not any(running_pods(kubernetes, node) for node in nodes), "it left")
    finally:
        service.end()
        if drained:
            kubernetes.kubectl("uncordon", drained)


def running_pods(cluster: KubernetesCluster, node: str) -> list[str]:
    pods = cluster.api.get("/api/v1/namespaces/weft/pods", fieldSelector=f"spec.nodeName={node}")
    return [
        str(pod["metadata"]["name"]) for pod in pods["items"] if pod["status"]["phase"] == "Running"
    ]


def evict(cluster: KubernetesCluster, pod: str) -> None:
    """As `kubectl drain` does."""
    version = "policy/v1" if release() > BUDGETS else "policy/v1beta1"
    body = {"apiVersion": version, "kind": "Eviction"}
    meta = {"name": pod, "namespace": "weft"}
    cluster.api.create(f"/api/v1/namespaces/weft/pods/{pod}/eviction", {**body, "metadata": meta})
