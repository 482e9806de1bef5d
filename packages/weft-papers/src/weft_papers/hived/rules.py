"""HiveD's options as written: cells of tenants, levels of machines and pinned nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

GPU, NODE = "gpu", "node"
LEVEL = re.compile(r"([A-Za-z][\w-]*)\*(\d+)")


@frozen
class CellRequest:
    """A tenant's request for `count` cells of a level of a chain; `chain` empty: the only one."""

    tenant: str
    chain: str
    level: str
    count: int

    @property
    def text(self) -> str:
        """Return the request as people write it."""
        level = f"{self.chain}.{self.level}" if self.chain else self.level
        return f"{self.tenant}@{level}"


@frozen
class CellOptions:
    """Options that were read but not yet compared with a cluster."""

    wanted: tuple[CellRequest, ...]
    levels: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    pinned: tuple[tuple[str, str], ...]

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys([*(w.tenant for w in self.wanted), *(t for t, _ in self.pinned)])
        )


def read_rules(
    cells: Mapping[str, float], levels: Mapping[str, str], pinned: Mapping[str, str]
) -> CellOptions:
    """From `TENANT@LEVEL` or `TENANT@KIND.LEVEL`, levels such as `switch*2 node*4`, and nodes."""
    wanted = tuple(_read_wanted(key, count) for key, count in cells.items())
    pins = tuple((who, node) for who, text in pinned.items() for node in text.split("+"))
    for who, node in pins:
        if not who or not node:
            raise InvalidConfig(
                f"pinned: {who!r} has {node!r}",
                hint="a node, or devices of it, such as n1 or n1:0-3",
            )
    return CellOptions(wanted, tuple((k, read_levels(k, text)) for k, text in levels.items()), pins)


def _read_wanted(key: str, count: float) -> CellRequest:
    tenant, at, what = key.partition("@")
    chain, dot, level = what.rpartition(".")
    if not tenant or not at or not level or (dot and not chain):
        raise InvalidConfig(
            f"cells: {key!r} names no cells of a tenant",
            hint="write TENANT@LEVEL or TENANT@KIND.LEVEL, such as nlp@node or nlp@a100.node",
        )
    if count != int(count) or count < 0:
        raise InvalidConfig(f"cells: {key}={count:g} is not a number of cells")
    return CellRequest(tenant, chain, level, int(count))


def read_levels(kind: str, text: str) -> tuple[tuple[str, int], ...]:
    """Names and how many of the level below make one, from the device up."""
    levels = []
    for word in text.split():
        match = LEVEL.fullmatch(word)
        if match is None or int(match[2]) < 1:
            raise InvalidConfig(
                f"levels: {kind}: {word!r} is no level",
                hint="name*number from the device up, such as 'switch*2 socket*2 node*2 rack*4'",
            )
        levels.append((match[1], int(match[2])))
    names = [name for name, _ in levels]
    if len(set(names)) < len(names) or GPU in names:
        raise InvalidConfig(f"levels: {kind}: {text!r} names a level twice", hint="gpu is there")
    if NODE not in names:
        raise InvalidConfig(
            f"levels: {kind}: {text!r} has no level `node`", hint="one of them is the machine"
        )
    return tuple(levels)
