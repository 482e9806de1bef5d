"""GPUs that drivers publish and pods claim (dynamic resource allocation, DRA): pure.

A device `claim/CLASS` stands for the devices of a driver that has the same name as its device
class, as those of GPU makers do: `claim/gpu.nvidia.com`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.engines.kubernetes.api import Object
from weft.engines.kubernetes.nodes import GIB, MEMORY, PRODUCT, quantity

API = "resource.k8s.io/v1"
SLICES = f"/apis/{API}/resourceslices"
CLASS = "claim/"
REQUEST = "gpus"  # what a claim's only request is called, and the claim in its pod
WHOLE = "gpu"  # the type of a device that is no part of one


def class_of(device: str) -> str:
    """The class that a device is claimed by; empty for one that a plug-in counts."""
    return device.removeprefix(CLASS) if device.startswith(CLASS) else ""


def templates_path(namespace: str) -> str:
    """Where the templates of claims are."""
    return f"/apis/{API}/namespaces/{namespace}/resourceclaimtemplates"


def template_name(device: str, count: int) -> str:
    """The template by which every pod with that many devices claims them."""
    return f"weft-{re.sub(r'[^a-z0-9]+', '-', class_of(device).lower())}-{count}"


def claim_template(device: str, count: int) -> Object:
    """From which Kubernetes makes the claim of a pod, and ends it with the pod."""
    request = {"name": REQUEST, "exactly": {"deviceClassName": class_of(device), "count": count}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": template_name(device, count)},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def with_slices(
    nodes: Iterable[Object], slices: Iterable[Object], devices: Sequence[str]
) -> list[Object]:
    """Nodes as if a plug-in had counted what drivers publish there, and labelled what it is."""
    known = list(slices)
    for device in filter(class_of, devices):
        by_node: dict[str, list[Object]] = {}
        for node, published in _published(known, class_of(device)):
            by_node.setdefault(node, []).append(published)
        nodes = [_counted(node, device, by_node) for node in nodes]
    return list(nodes)


def _published(slices: Sequence[Object], driver: str) -> Iterator[tuple[str, Object]]:
    """Whole devices that can be claimed, each with its node; of a pool the newest state alone."""
    specs = [published["spec"] for published in slices if published["spec"]["driver"] == driver]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), int(pool["generation"]))
    for spec in specs:
        if spec.get("nodeName") and int(spec["pool"]["generation"]) == newest[spec["pool"]["name"]]:
            for device in spec.get("devices") or ():
                whole = _attribute(device, "type") in ("", WHOLE)
                if whole and not any(_bars(taint) for taint in device.get("taints") or ()):
                    yield str(spec["nodeName"]), device


def _counted(node: Object, device: str, by_node: Mapping[str, Sequence[Object]]) -> Object:
    there = by_node.get(str(node["metadata"]["name"]), ())
    if not there:
        return node
    meta, status = node["metadata"], node.get("status") or {}
    holds = (there[0].get("capacity") or {}).get("memory") or {}
    memory_mib = round(quantity(str(holds.get("value", "0"))) / GIB * 1024)
    labelled = {PRODUCT: _attribute(there[0], "productName"), device + MEMORY: str(memory_mib)}
    labels = {
        **{name: text for name, text in labelled.items() if text},
        **(meta.get("labels") or {}),
    }
    allocatable = {**(status.get("allocatable") or {}), device: str(len(there))}
    return {
        **node,
        "metadata": {**meta, "labels": labels},
        "status": {**status, "allocatable": allocatable},
    }


def _attribute(device: Object, name: str) -> str:
    value: Mapping[str, Any] = (device.get("attributes") or {}).get(name) or {}
    return str(value.get("string", ""))


def _bars(taint: Object) -> bool:
    return taint.get("effect") in ("NoSchedule", "NoExecute")
