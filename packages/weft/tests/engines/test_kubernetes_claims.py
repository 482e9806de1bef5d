"""Devices that drivers publish: how many a node has, and what a pod claims."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId, NodeId
from weft.engines.fleet.port import AttemptPart, Gang
from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.engine import KubernetesEngine
from weft.engines.kubernetes.nodes import claim_template, machine_of, template_name, with_slices
from weft.engines.kubernetes.pods import PodSettings, pods_of

DEVICE = "claim/gpu.nvidia.com"


def node(name: str, **labels: str) -> Object:
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"cpu": "8", "memory": "16Gi"}, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def device(kind: str = "gpu", **more: Any) -> Object:
    attributes = {"type": {"string": kind}, "productName": {"string": "NVIDIA H200"}}
    return {
        "name": "g",
        "attributes": attributes,
        "capacity": {"memory": {"value": "141Gi"}},
    } | more


def slice_of(at: str, *devices: Object, generation: int = 1, driver: str = "") -> Object:
    pool = {"name": at, "generation": generation, "resourceSliceCount": 1}
    driver = driver or "gpu.nvidia.com"
    return {"spec": {"nodeName": at, "driver": driver, "pool": pool, "devices": list(devices)}}


def test_a_node_has_the_whole_devices_of_its_newest_slices() -> None:
    tainted = device(taints=[{"key": "sick", "effect": "NoSchedule"}])
    slices = [
        slice_of("n1", device(), device(), device(), generation=1),
        slice_of("n1", device(), tainted, generation=2),
        slice_of("n1", device(), device("mig"), generation=2),
        slice_of("n1", device(), driver="nic.example"),
    ]

    counted, other = with_slices([node("n1"), node("n2")], slices, ("nvidia.com/gpu", DEVICE))

    machine = machine_of(counted, device=DEVICE)
    assert machine is not None
    assert (machine.node.kind, machine.node.gpus, machine.node.gpu_mem_gb) == ("h200", 2, 141.0)
    assert other == node("n2")
    assert machine_of(other, device=DEVICE) is None


def test_what_an_administrator_says_of_a_node_holds() -> None:
    labelled = node("n1", **{"weft/kind": "gh200"})

    (counted,) = with_slices([labelled], [slice_of("n1", device())], (DEVICE,))

    machine = machine_of(counted, device=DEVICE)
    assert machine is not None
    assert machine.node.kind == "gh200"


def test_a_pod_claims_its_devices_and_asks_no_plug_in() -> None:
    site = PodSettings("0" * 12, "ml", "image", devices=(DEVICE,), place="selector")
    part = AttemptPart(NodeId("n1"), (0, 1, 2), 4.0, 8.0, Path("/tmp/x"))

    (pod,) = pods_of(Gang(JobId("net"), 1, "net", "t", (part,)), site)

    (claim,) = pod["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == template_name(DEVICE, 3) == "weft-gpu-nvidia-com-3"
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["claims"] == [{"name": claim["name"]}]
    assert resources["limits"] == {"memory": "8192Mi"}
    assert DEVICE not in [each["key"] for each in pod["spec"]["tolerations"]]
    (request,) = claim_template(DEVICE, 3)["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu.nvidia.com", "count": 3}


def test_claims_need_the_clusters_scheduler(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    users = [{"name": "u", "user": {}}]
    body = {"clusters": clusters, "users": users, "contexts": contexts, "current-context": "x"}
    kubeconfig.write_text(json.dumps(body))

    with pytest.raises(InvalidConfig, match="place=selector"):
        KubernetesEngine(tmp_path, image="i", kubeconfig=str(kubeconfig), mounts="/", device=DEVICE)
