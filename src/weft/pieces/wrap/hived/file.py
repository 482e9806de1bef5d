"""Virtual clusters as people write them in a file.

levels:                                  # optional: of what machines of a kind are made
  v100: {switch: 2, socket: 2, node: 2, rack: 4}
virtual_clusters:
  vision: {v100: {node: 4, socket: 1}}   # or {node: 4} where there is one kind
  nlp: {a100: {node: 2}, pinned: [n7, "n8:0-3"]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.core.errors import InvalidConfig, did_you_mean

LEVELS, CLUSTERS, PINNED = "levels", "virtual_clusters", "pinned"
EXAMPLE = "virtual_clusters: {vision: {v100: {node: 4}}}"


def read_content(content: object) -> dict[str, Any]:
    """Parameters of `hived` from what a file holds; InvalidConfig names the field at fault."""
    whole = _fields(content, "the file", EXAMPLE)
    for key in whole:
        if key not in (LEVELS, CLUSTERS):
            close = did_you_mean(key, (LEVELS, CLUSTERS))
            raise InvalidConfig(
                f"unknown field {key!r}{close}", hint=f"known are {LEVELS} and {CLUSTERS}"
            )
    cells: dict[str, float] = {}
    pinned: dict[str, str] = {}
    clusters = _fields(whole.get(CLUSTERS, {}), CLUSTERS, EXAMPLE)
    for tenant, held in clusters.items():
        where = f"{CLUSTERS}.{tenant}"
        for key, value in _fields(held, where, EXAMPLE).items():
            if key == PINNED:
                pinned[tenant] = "+".join(_nodes(value, f"{where}.{PINNED}"))
            elif isinstance(value, Mapping):
                for level, count in _fields(value, f"{where}.{key}", EXAMPLE).items():
                    cells[f"{tenant}@{key}.{level}"] = _count(count, f"{where}.{key}.{level}")
            else:
                cells[f"{tenant}@{key}"] = _count(value, f"{where}.{key}")
    if not cells and not pinned:
        raise InvalidConfig(f"{CLUSTERS}: there is none", hint=f"for example {EXAMPLE}")
    levels = {
        kind: _levels(levels, f"{LEVELS}.{kind}")
        for kind, levels in _fields(whole.get(LEVELS, {}), LEVELS, "").items()
    }
    return {"cells": cells, "levels": levels, "pinned": pinned}


def _fields(value: object, where: str, example: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        hint = f"for example {example}" if example else ""
        raise InvalidConfig(f"{where} is {value!r}, expected fields", hint=hint)
    return {str(key): item for key, item in value.items()}


def _count(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfig(f"{where} is {value!r}, expected a number of cells")
    return float(value)


def _levels(value: object, where: str) -> str:
    words = []
    for name, fan in _fields(value, where, "{switch: 2, node: 4}").items():
        if isinstance(fan, bool) or not isinstance(fan, int) or fan < 1:
            raise InvalidConfig(
                f"{where}.{name} is {fan!r}, expected a number of cells of the level below"
            )
        words.append(f"{name}*{fan}")
    return " ".join(words)


def _nodes(value: object, where: str) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(node, str) for node in value):
        raise InvalidConfig(f"{where} is {value!r}, expected a list of nodes", hint="such as [n1]")
    return list(value)
