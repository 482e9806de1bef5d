"""The Kubernetes engine on a real API server with nodes that are processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.clusters.kubelet import can_name
from tests.clusters.kubernetes import KubernetesCluster
from tests.engines.elastic_scenario import train_through_it_all
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.testing.check_engine import CHECKS
from weft.testing.engine_subject import Check, Subject, shell_subject

pytestmark = pytest.mark.slow
ADDRESS = "service" if can_name() else "pod"


def engine(cluster: KubernetesCluster, state: Path) -> KubernetesEngine:
    return KubernetesEngine(
        state,
        image="none",
        kubeconfig=str(cluster.kubeconfig),
        mounts=f"{state}+/",
        python=sys.executable,
        address=ADDRESS,
    )


def subject(cluster: KubernetesCluster, state: Path) -> Subject:
    return shell_subject(
        lambda: engine(cluster, state),
        where="$NODE_NAME",
        kill_node=cluster.kill_kubelet,  # its processes run on, out of reach
        restore_node=cluster.restore_node,
        kill_controller=cluster.stop_server,
        restore_controller=cluster.start_server,
    )


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_kubernetes_engine_keeps_the_contract(
    check: Check, kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    try:
        asyncio.run(check(subject(kubernetes, tmp_path / "state")))
    finally:
        kubernetes.wait_for_nodes()


def test_training_goes_on_through_resizes_a_killed_service_and_a_killed_node(
    kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    options = f"kubeconfig={kubernetes.kubeconfig},image=none,mounts=/,address={ADDRESS}"
    spec = f"kubernetes:{options},python={sys.executable}"
    try:
        train_through_it_all(spec, tmp_path / "state", kubernetes.kill_node)
    finally:
        for name in kubernetes.nodes:
            kubernetes.restore_node(name)
