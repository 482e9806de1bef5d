"""A cluster from what a user types: a name, a string of parts, or a YAML or JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.app.files import load_yaml
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
from weft.core.model.node_types import find_node_type
from weft.core.model.topology import HOST_GB_S, GpuLink, Groups, NodeTopology, Uplink, check_uplinks
from weft.core.paths import expand
from weft.plural import say_gpus

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
        raise InvalidConfig(f"{where}: {say_gpus(count * gpus)}", hint=f"use at most {MAX_GPUS:,}")
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


# How GPUs and nodes are joined, from a cluster file: types of nodes, racks and spines.

LINK_FIELDS = (
    "links",
    "sockets",
    "switches",
    "host_gb_s",
    "switch_gb_s",
    "fabric_gb_s",
    "fabric_width",
)
LINKS_EXAMPLE = "{sockets: [[0, 1], [2, 3]], links: [[0, 1, 2, 50], [2, 3, 2, 50]], host_gb_s: 10}"
RACKS = "racks: {r1: 200, r2: {gbps: 200, spine: s1}}, spines: {s1: 400}"


def find_topology(where: str, held: Any, gpus: int, folder: Path) -> NodeTopology:
    """A type of node by name, a file beside the cluster's, or the fields themselves."""
    if isinstance(held, str):
        if Path(held).suffix not in (".yaml", ".yml", ".json"):
            return find_node_type(held, gpus, where)
        path = folder / expand(held)
        return read_topology(str(path), path.stem, load_yaml(path), gpus)
    return read_topology(f"{where}: topology", "own", held, gpus)


def read_topology(where: str, name: str, held: Any, gpus: int) -> NodeTopology:
    """The links inside a node from fields; a link is [gpu, gpu, NVLink lanes, GB/s]."""
    if not isinstance(held, dict):
        raise InvalidConfig(f"{where}: expected fields, found {held!r:.80}", hint=LINKS_EXAMPLE)
    for key in held:
        if key not in LINK_FIELDS:
            raise InvalidConfig(
                f"{where}: unknown field {key!r}{did_you_mean(str(key), LINK_FIELDS)}",
                hint=f"known fields are {', '.join(LINK_FIELDS)}",
            )
    links = tuple(_link(where, link) for link in _listed(where, "links", held.get("links", [])))
    numbers = {key: _number(where, key, held[key]) for key in LINK_FIELDS[3:] if key in held}
    return NodeTopology(
        name,
        gpus,
        links,
        _groups(where, "sockets", held.get("sockets", [])),
        _groups(where, "switches", held.get("switches", [])),
        numbers.get("host_gb_s", HOST_GB_S),
        numbers.get("switch_gb_s", 0.0),
        numbers.get("fabric_gb_s", 0.0),
        int(numbers.get("fabric_width", 0)),
    )


def read_uplinks(where: str, racks: Any, spines: Any) -> dict[str, tuple[Uplink, ...]]:
    """The links above the nodes of each rack: its own uplink, then its spine's."""
    tops = {
        str(name): Uplink(str(name), _number(where, f"spines.{name}", gbps))
        for name, gbps in _table(where, "spines", spines).items()
    }
    above: dict[str, tuple[Uplink, ...]] = {}
    for name, held in _table(where, "racks", racks).items():
        field = f"racks.{name}"
        fields = held if isinstance(held, dict) else {"gbps": held}
        if not fields.keys() <= {"gbps", "spine"} or "gbps" not in fields:
            raise InvalidConfig(f"{where}: {field} has gbps and spine", hint=f"for example {RACKS}")
        way: tuple[Uplink, ...] = (
            Uplink(str(name), _number(where, f"{field}.gbps", fields["gbps"])),
        )
        if (spine := fields.get("spine")) is not None:
            if str(spine) not in tops:
                raise InvalidConfig(
                    f"{where}: {field}.spine: no spine {spine!r}{did_you_mean(str(spine), tops)}",
                    hint=f"for example {RACKS}",
                )
            way = (*way, tops[str(spine)])
        above[str(name)] = way
    return above


def _table(where: str, field: str, held: Any) -> Mapping[Any, Any]:
    if held is None:
        return {}
    if not isinstance(held, dict):
        raise InvalidConfig(f"{where}: {field} is no table", hint=f"for example {RACKS}")
    return held


def _listed(where: str, field: str, held: Any) -> list[Any]:
    if not isinstance(held, list):
        raise InvalidConfig(f"{where}: {field}={held!r:.80} is no list", hint=LINKS_EXAMPLE)
    return held


def _groups(where: str, field: str, held: Any) -> Groups:
    groups = [_listed(where, field, group) for group in _listed(where, field, held)]
    return tuple(tuple(_whole(where, field, gpu) for gpu in group) for group in groups)


def _link(where: str, held: Any) -> GpuLink:
    parts = _listed(where, "links", held)
    if len(parts) != 4:
        raise InvalidConfig(f"{where}: links: {held!r} is not [gpu, gpu, lanes, GB/s]")
    a, b, width = (_whole(where, "links", part) for part in parts[:3])
    return GpuLink(a, b, width, _number(where, "links", parts[3]))


def _whole(where: str, field: str, held: Any) -> int:
    if isinstance(held, bool) or not isinstance(held, int):
        raise InvalidConfig(f"{where}: {field}: {held!r} is not a whole number", hint=LINKS_EXAMPLE)
    return held


def _number(where: str, field: str, held: Any) -> float:
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise InvalidConfig(f"{where}: {field}: {held!r} is not a number")
    return float(held)
