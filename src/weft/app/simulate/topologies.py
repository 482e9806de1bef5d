"""How GPUs and nodes are joined, from a cluster file: types of nodes, racks and spines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.app.yaml_file import load_yaml
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model.node_types import find_node_type
from weft.core.model.topology import HOST_GB_S, GpuLink, Groups, NodeTopology, Uplink
from weft.core.paths import expand

FIELDS = (
    "links",
    "sockets",
    "switches",
    "host_gb_s",
    "switch_gb_s",
    "fabric_gb_s",
    "fabric_width",
)
EXAMPLE = "{sockets: [[0, 1], [2, 3]], links: [[0, 1, 2, 50], [2, 3, 2, 50]], host_gb_s: 10}"
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
        raise InvalidConfig(f"{where}: expected fields, found {held!r:.80}", hint=EXAMPLE)
    for key in held:
        if key not in FIELDS:
            raise InvalidConfig(
                f"{where}: unknown field {key!r}{did_you_mean(str(key), FIELDS)}",
                hint=f"known fields are {', '.join(FIELDS)}",
            )
    links = tuple(_link(where, link) for link in _listed(where, "links", held.get("links", [])))
    numbers = {key: _number(where, key, held[key]) for key in FIELDS[3:] if key in held}
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
        raise InvalidConfig(f"{where}: {field}={held!r:.80} is no list", hint=EXAMPLE)
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
        raise InvalidConfig(f"{where}: {field}: {held!r} is not a whole number", hint=EXAMPLE)
    return held


def _number(where: str, field: str, held: Any) -> float:
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise InvalidConfig(f"{where}: {field}: {held!r} is not a number")
    return float(held)
