"""A cluster from what a user types: a name, a string of parts, or a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.app.yaml_file import load_yaml
from weft.core.cluster import (
    CPUS_PER_GPU,
    MAX_GPUS,
    MEM_GB_PER_GPU,
    Cluster,
    Node,
    parse_cluster,
)
from weft.core.errors import InvalidConfig, did_you_mean
from weft.core.model import NodeId

FIELDS = {
    "count": int,
    "gpus": int,
    "kind": str,
    "cpus": float,
    "mem_gb": float,
    "rack": str,
    "name": str,
}
EXAMPLE = "nodes: [{count: 2, gpus: 8, kind: a100}]"


def find_cluster(text: str) -> Cluster:
    """Read a file if there is one of that name, else the string itself."""
    path = Path(text).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return read_cluster(path)
    return parse_cluster(text)


def read_cluster(path: Path) -> Cluster:
    """A file with a list of `nodes`: count, gpus, kind, and optionally cpus, mem_gb, rack."""
    content = load_yaml(path)
    entries = content.get("nodes") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InvalidConfig(f"{path} has no list of nodes", hint=f"for example {EXAMPLE}")
    nodes: list[Node] = []
    for number, entry in enumerate(entries, 1):
        nodes += _nodes(f"{path}, node {number}", entry, len(nodes))
    names = [node.id for node in nodes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidConfig(f"{path}: node {sorted(twice)[0]!r} is named twice")
    return Cluster(tuple(nodes), path.stem)


def _nodes(where: str, entry: Any, first: int) -> list[Node]:
    if not isinstance(entry, dict):
        raise InvalidConfig(f"{where}: expected fields, found {entry!r}", hint=EXAMPLE)
    for key in entry:
        if key not in FIELDS:
            raise InvalidConfig(
                f"{where}: unknown field {key!r}{did_you_mean(str(key), FIELDS)}",
                hint=f"known fields are {', '.join(FIELDS)}",
            )
    values = {key: _value(where, key, held) for key, held in entry.items()}
    if "gpus" not in values or "kind" not in values:
        raise InvalidConfig(f"{where}: gpus and kind are needed", hint=f"for example {EXAMPLE}")
    count, gpus, kind = values.get("count", 1), values["gpus"], values["kind"]
    if count < 1 or gpus < 1:
        raise InvalidConfig(f"{where}: count={count} and gpus={gpus} must be at least 1")
    if count * gpus > MAX_GPUS:
        raise InvalidConfig(f"{where}: {count * gpus} GPUs", hint=f"use at most {MAX_GPUS:,}")
    stem = values.get("name", f"{kind}-{first}")
    return [
        Node(
            NodeId(stem if count == 1 else f"{values.get('name', kind)}-{first + i}"),
            kind,
            gpus,
            values.get("cpus", gpus * CPUS_PER_GPU),
            values.get("mem_gb", gpus * MEM_GB_PER_GPU),
            values.get("rack", ""),
        )
        for i in range(count)
    ]


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
