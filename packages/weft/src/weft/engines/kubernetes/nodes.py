"""Node objects as machines with GPUs, and GPUs that pods claim (DRA): pure.

A device `claim/CLASS` stands for the devices of a driver that has the same name as its device
class, as those of GPU makers do: `claim/gpu.nvidia.com`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.core.codec.yaml_text import parse_yaml
from weft.core.errors import InvalidConfig
from weft.core.model.cluster import CPU, Node
from weft.core.model.job import NodeId
from weft.engines.fleet.port import Machine, NodeHealth
from weft.engines.kubernetes.api import Object
from weft.engines.machine.devices import kind_of

DEVICE = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
MEMORY = ".memory"  # after a device's name: MiB of each
SLICE = re.compile(r"(?i)\bmig-(\d+g\.\d+gb\S*)")  # of a GPU, in a device's or product's name
KIND, RACK = "weft/kind", "weft/rack"
# Labels that say what the GPUs of a node are, the most trusted first.
KIND_LABELS = (
    KIND,
    PRODUCT,
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "node.kubernetes.io/instance-type",
)
LABEL = re.compile(r"(!?)([A-Za-z0-9][\w./-]*)(?:(!?=)([\w.-]*))?")
UNITS = {
    "": 1.0,
    "m": 1e-3,
    **{unit: 10.0 ** (3 * at) for at, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: 2.0 ** (10 * at) for at, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}
GIB = 2.0**30
NODES_VALUES = 5_000_000  # of a file with all nodes of a large cluster


def quantity(text: str) -> float:
    """A number as Kubernetes writes it: 250m, 16Gi, 1e3."""
    match = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([mkMGTP]?|[KMGTP]i)", text.strip())
    if match is None:
        raise InvalidConfig(f"{text!r} is not a quantity", hint="write one like 500m, 8 or 16Gi")
    return float(match[1]) * UNITS[match[2]]


def machine_of(
    listed: Object,
    *,
    device: str = DEVICE,
    keep_cpus: float = 0.0,
    keep_mem_gb: float = 0.0,
    tolerated: Collection[str] = (),
    kind_label: str = "",
    rack_label: str = RACK,
) -> Machine | None:
    """A node with what jobs may have of it, less what is kept for others; None without devices."""
    meta, status = listed["metadata"], listed.get("status") or {}
    labels: Mapping[str, str] = meta.get("labels") or {}
    holds: Mapping[str, str] = status.get("allocatable") or {}
    gpus = int(quantity(str(holds.get(device, "0"))))
    if gpus < 1:
        return None
    health, reason = health_of(listed, {device, *tolerated})
    mem_mib = labels.get(device + MEMORY, "0")
    node = Node(
        NodeId(str(meta["name"])),
        CPU if device == "cpu" else kind_in(labels, device, kind_label),
        gpus,
        cpus=max(quantity(str(holds.get("cpu", "0"))) - keep_cpus, 0.0),
        mem_gb=max(quantity(str(holds.get("memory", "0"))) / GIB - keep_mem_gb, 0.0),
        rack=labels.get(rack_label, ""),
        gpu_mem_gb=round(quantity(mem_mib) / 1024, 1),
    )
    return Machine(node, health, reason)


def health_of(node: Object, tolerated: Collection[str]) -> tuple[NodeHealth, str]:
    """The fitness of a node for pods, and why it is not fit."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
    if ready.get("status") != "True":
        trouble = ready.get("message") or ready.get("reason") or "it never reported"
        return NodeHealth.DOWN, f"not ready: {trouble}"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return NodeHealth.DRAINING, "cordoned"
    for taint in spec.get("taints") or ():
        key, effect = str(taint.get("key")), str(taint.get("effect"))
        if key not in tolerated and effect in ("NoSchedule", "NoExecute"):
            return NodeHealth.DRAINING, f"tainted {key}:{effect}; `tolerate={key}` ignores that"
    return NodeHealth.UP, ""


def read_labels(text: str) -> tuple[str, ...]:
    """Labels of nodes, joined by `+`."""
    labels = tuple(filter(None, re.split("[+,]", text)))
    for label in labels:
        if not LABEL.fullmatch(label):
            hint = "write KEY=VALUE or KEY, and KEY!=VALUE or !KEY for nodes without it"
            raise InvalidConfig(f"labels has {label!r}", hint=hint)
    return labels


def read_taints(text: str) -> tuple[str, ...]:
    """Keys of taints, joined by `+`."""
    keys = tuple(filter(None, text.split("+")))
    for key in keys:
        if not re.fullmatch(r"[A-Za-z0-9][\w./-]*", key):
            raise InvalidConfig(
                f"tolerate has {key!r}", hint="write the taint's key alone, without value or effect"
            )
    return keys


def has_labels(node: Object, wanted: Iterable[str]) -> bool:
    """True if the node has these labels, by the rules of Kubernetes' own selectors."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    for text in wanted:
        if (match := LABEL.fullmatch(text)) is None:
            return False
        absent, key, sign, value = match.groups()
        there = labels.get(key) == value if sign else key in labels
        if there == ("!" in (absent + (sign or ""))):
            return False
    return True


def read_devices(text: str) -> tuple[str, ...]:
    """Names of resources, joined by `+`."""
    devices = tuple(filter(None, text.split("+")))
    for device in devices:
        if device != "cpu" and not re.fullmatch(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+", device):
            raise InvalidConfig(f"device is {device!r}", hint="write one like nvidia.com/gpu")
    if not devices:
        raise InvalidConfig("device is empty", hint="write one like nvidia.com/gpu")
    return devices


def device_of(listed: Object, devices: Sequence[str]) -> str:
    """The resource that jobs ask for there: the first of `devices` that a node has.

    Empty for none.
    """
    holds = (listed.get("status") or {}).get("allocatable") or {}
    return next((name for name in devices if quantity(str(holds.get(name, "0"))) >= 1.0), "")


def kind_in(labels: Mapping[str, str], device: str = DEVICE, kind_label: str = "") -> str:
    """Our word for the GPUs of a node with these labels; slices of one have theirs besides."""
    names = (kind_label, *KIND_LABELS)
    label = next((labels[name] for name in names if labels.get(name)), "gpu")
    part = SLICE.search(device) or SLICE.search(label)
    kind = kind_of(SLICE.sub("", label).replace("-", " ").replace("_", " "))
    return f"{kind}-{part[1].lower()}" if part else kind


def read_nodes(path: Path) -> list[Object]:
    """The nodes that `kubectl get nodes -o json` (or yaml) printed, for users without rights."""
    try:
        text = path.read_text()
        is_json = text.lstrip().startswith("{")
        body = json.loads(text) if is_json else parse_yaml(text, str(path), NODES_VALUES)
        items: Iterable[Object] = body.get("items", [body])
        return [item for item in items if item["metadata"]["name"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidConfig(
            f"{path} is not a list of nodes: {error}",
            hint="an administrator writes it by `kubectl get nodes -o json`",
        ) from error


API = "resource.k8s.io/v1"
SLICES = f"/apis/{API}/resourceslices"
CLASS = "claim/"
REQUEST = "gpus"  # what a claim's only request is called, and the claim in its pod
WHOLE = "gpu"  # the type of a device that is no part of one


def class_of(device: str) -> str:
    """The class that a device is claimed by; empty for one that a plug-in counts."""
    return device.removeprefix(CLASS) if device.startswith(CLASS) else ""


def templates_path(namespace: str) -> str:
    """The path of the templates of claims."""
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
