"""A cluster from what a user types: a name, a string of parts, or a YAML or JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.app.simulate.topologies import find_topology, read_uplinks
from weft.app.yaml_file import load_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.cluster import (
    CPUS_PER_GPU,
    MAX_GPUS,
    MEM_GB_PER_GPU,
    Cluster,
    Node,
    parse_cluster,
)
from weft.core.model.job import NodeId
from weft.core.model.topology import NodeTopology, Uplink, check_uplinks
from weft.core.paths import expand

FIELDS = {
    "count": int,
    "gpus": int,
    "kind": str,
    "cpus": float,
    "mem_gb": float,
    "rack": str,
    "name": str,
    "nic_gbps": float,
}
TOPOLOGY = "topology"  # a type of node, a file, or the fields themselves
NETWORK = ("racks", "spines")
EXAMPLE = "nodes: [{count: 2, gpus: 8, kind: a100}]"


def find_cluster(text: str) -> Cluster:
    """Read a file if there is one of that name, else the string itself."""
    path = expand(text)
    if path.suffix in (".yaml", ".yml", ".json"):
        return read_cluster(path)
    return parse_cluster(text)


def read_cluster(path: Path) -> Cluster:
    """A file with a list of `nodes`, and perhaps the `racks` and `spines` above them.

    A node has count, gpus, kind, and optionally cpus, mem_gb, rack, nic_gbps and topology.
    """
    content = load_yaml(path)
    entries = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidConfig(f"{path} has no list of nodes", hint=f"for example {EXAMPLE}")
    for key in content:
        if key not in ("nodes", *NETWORK):
            raise _unknown(str(path), key, ("nodes", *NETWORK))
    above = read_uplinks(str(path), content.get("racks"), content.get("spines"))
    nodes: list[Node] = []
    for number, entry in enumerate(entries, 1):
        nodes += _nodes(f"{path}, node {number}", entry, len(nodes), above, path.parent)
    names = [node.id for node in nodes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidConfig(f"{path}: node {sorted(twice)[0]!r} is named twice")
    if unused := above.keys() - {node.rack for node in nodes}:
        raise InvalidConfig(f"{path}: no node is in rack {sorted(unused)[0]!r}")
    check_uplinks(node.uplinks for node in nodes)
    return Cluster(tuple(nodes), path.stem)


def _nodes(
    where: str, entry: Any, first: int, above: Mapping[str, tuple[Uplink, ...]], folder: Path
) -> list[Node]:
    if not isinstance(entry, dict):
        raise InvalidConfig(f"{where}: expected fields, found {entry!r}", hint=EXAMPLE)
    for key in entry:
        if key not in FIELDS and key != TOPOLOGY:
            raise _unknown(where, key, (*FIELDS, TOPOLOGY))
    values = {key: _value(where, key, held) for key, held in entry.items() if key != TOPOLOGY}
    if "gpus" not in values or "kind" not in values:
        raise InvalidConfig(f"{where}: gpus and kind are needed", hint=f"for example {EXAMPLE}")
    count, gpus, kind = values.get("count", 1), values["gpus"], values["kind"]
    if count < 1 or gpus < 1:
        raise InvalidConfig(f"{where}: count={count} and gpus={gpus} must be at least 1")
    if count * gpus > MAX_GPUS:
        raise InvalidConfig(f"{where}: {count * gpus} GPUs", hint=f"use at most {MAX_GPUS:,}")
    stem = values.get("name", f"{kind}-{first}")
    topology: NodeTopology | None = None
    if TOPOLOGY in entry:
        topology = find_topology(where, entry[TOPOLOGY], gpus, folder)
    names = [
        stem if count == 1 else f"{values.get('name', kind)}-{first + i}" for i in range(count)
    ]
    nic, rack = values.get("nic_gbps", 0.0), values.get("rack", "")
    return [
        Node(
            NodeId(name),
            kind,
            gpus,
            values.get("cpus", gpus * CPUS_PER_GPU),
            values.get("mem_gb", gpus * MEM_GB_PER_GPU),
            rack,
            topology=topology,
            uplinks=((Uplink(name, nic),) if nic else ()) + above.get(rack, ()),
        )
        for name in names
    ]


def _unknown(where: str, key: Any, known: Iterable[str]) -> InvalidConfig:
    return InvalidConfig(
        f"{where}: unknown field {key!r}{did_you_mean(str(key), known)}",
        hint=f"known fields are {', '.join(known)}",
    )


def _value(where: str, key: str, held: Any) -> Any:
    wanted = FIELDS[key]
    if wanted is str:
        return str(held)
    if isinstance(held, bool) or not isinstance(held, (int, wanted)):
        what = "a whole number" if wanted is int else "a number"
        raise InvalidConfig(f"{where}: {key}={held!r} is not {what}")
    value = wanted(held)
    if wanted is float and not value >= 0:
        raise InvalidConfig(f"{where}: {key}={value} must not be below 0")
    return value
