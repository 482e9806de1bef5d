"""Which nodes pilots hold, and for which tenant alone: pure.

`a1/a2` are held for all tenants, `vision:a1+a2/nlp:t1` gives each tenant a pool of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.errors import InvalidConfig
from weft.core.model.job import NodeId
from weft.engines.slurm.accounts import Charges, plural
from weft.frozen import frozen


@frozen
class Pools:
    """The tenant of each node that is to be held, empty for all; no nodes: all there are."""

    tenants: Mapping[NodeId, str] = field(default_factory=dict)

    def may_hold(self, node: NodeId) -> bool:
        """Whether a node is among those to be held."""
        return not self.tenants or node in self.tenants

    def check(self, charges: Charges) -> None:
        """Raise InvalidConfig where a tenant's jobs could not be charged as its lists say."""
        if "partition" in charges.lists:
            raise InvalidConfig(
                "slurm: a pilot's nodes are in one partition for all tenants",
                hint="drop partitions=, or use mode=native",
            )
        pooled = {*self.tenants.values()}
        for name, lists in charges.lists.items():
            for tenant, allowed in lists.items():
                if tenant not in pooled:
                    raise InvalidConfig(
                        f"slurm: tenant {tenant!r} has {plural(name)} but no pilots of its own",
                        hint=f"name its nodes, nodes={tenant}:NODE+NODE, or use mode=native",
                    )
                if len(allowed) > 1:
                    raise InvalidConfig(
                        f"slurm: tenant {tenant!r} has several {plural(name)}, and a pilot has one",
                        hint=f"write {plural(name)}={tenant}:{allowed[0]}, or use mode=native",
                    )


def read_pools(text: str) -> Pools:
    """As they are written in the parameter `nodes`."""
    tenants: dict[NodeId, str] = {}
    for part in filter(None, text.split("/")):
        tenant, colon, names = part.rpartition(":")
        nodes = [NodeId(name) for name in names.split("+")]
        again = [node for node in nodes if node in tenants]
        if (colon and not tenant) or not all(nodes) or again:
            raise InvalidConfig(
                f"slurm: nodes has {part!r}" + (f", and {again[0]!r} twice" if again else ""),
                hint="write nodes=NODE/NODE, or nodes=TENANT:NODE+NODE/TENANT:NODE",
            )
        tenants |= dict.fromkeys(nodes, tenant)
    return Pools(tenants)
