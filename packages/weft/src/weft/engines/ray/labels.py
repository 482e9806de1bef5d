"""Reads a node of Ray: its name, its kind, its devices, from labels and resources.

`weft join` puts the labels there. Nodes without them have Ray's own names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from weft.core.model.cluster import CPU, Node
from weft.core.model.job import NodeId
from weft.engines.fleet.port import Machine, NodeHealth

NODE, KIND = "weft/node", "weft/kind"
SLOTS = "weft_slots"  # a resource: CPU slots of a node without GPUs
ACCELERATOR = "ray.io/accelerator-type"
GB = 1e9
LONGEST = 63  # what Ray takes as the value of a label

Row = Mapping[str, Any]


def reserved(resources: Mapping[str, float]) -> dict[str, float]:
    """The resources that a runner holds of its node, so that Ray gives them to no other job."""
    held = {name: resources.get(name, 0.0) for name in ("GPU", "CPU", SLOTS)}
    return {name: amount for name, amount in held.items() if amount > 0.0}


def kind_of(labels: Mapping[str, str], gpus: int) -> str:
    """The kind of a node's devices, in our words."""
    if not gpus:
        return CPU
    label = labels.get(KIND) or labels.get(ACCELERATOR) or "gpu"
    return re.sub(r"^(nvidia|amd|intel)[- _]|^(tesla|geforce)[- _]", "", label.lower())


def read_node(row: Row, name: str) -> Node:
    """A node as the scheduler sees it; `gpus` 0 for one that is down and was never seen up."""
    resources: Mapping[str, float] = row["resources"]
    gpus = int(resources.get("GPU", 0))
    cpus = resources.get("CPU", 0.0)
    slots = int(resources.get(SLOTS, 0) or cpus)
    return Node(
        NodeId(name),
        kind_of(row["labels"], gpus),
        gpus or slots,
        cpus=cpus,
        mem_gb=round(resources.get("memory", 0.0) / GB, 3),
    )


def name_nodes(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by the name of the node: of several lives of one node the one that is up, else any."""
    alive = [row for row in rows if row["alive"]]
    hosts = [row["labels"].get(NODE) or row["host"] for row in alive]
    named: dict[str, Row] = {}
    for row in rows:
        if not row["alive"] and (name := row["labels"].get(NODE)):
            named[name] = row
    for row, host in zip(alive, hosts, strict=True):
        # Several nodes of one machine, as in a test, would all have its name.
        name = host if hosts.count(host) == 1 else f"{host}-{row['id'][:6]}"
        named[name] = row
    return named


def read_machine(row: Row, name: str, before: Node | None) -> Machine | None:
    """A node with its health; None for one that is down and was never known."""
    node = read_node(row, name)
    if not row["alive"]:
        reason = row["reason"] or "Ray has given it up"
        return None if before is None else Machine(before, NodeHealth.DOWN, reason, row["address"])
    if node.gpus < 1:
        return None
    if row["draining"]:
        return Machine(node, NodeHealth.DRAINING, "it leaves the cluster", row["address"])
    if row["runner"] is None or "dead" in row["runner"]:
        why = "no runner there yet; is what it has in use by others? (`ray status`)"
        return Machine(node, NodeHealth.DOWN, why, row["address"])
    return Machine(node, NodeHealth.UP, "", row["address"])


def check_label(text: str) -> bool:
    """True if Ray takes a text as the value of a label."""
    return bool(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text)) and (
        len(text) <= LONGEST
    )
