"""Which account, QOS and partition of Slurm a tenant's jobs have: pure.

A tenant has a list of each, the usual one first: `vision:vis+vis-urgent/nlp:nlp` gives tenant
vision two and nlp one. A job chooses among its tenant's by the variables that sbatch reads itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from weft.core.errors import InvalidConfig
from weft.engines.slurm.script import SbatchOptions
from weft.frozen import frozen

# By the fields of SbatchOptions.
VARIABLES = {"account": "SBATCH_ACCOUNT", "qos": "SBATCH_QOS", "partition": "SBATCH_PARTITION"}
Lists = Mapping[str, tuple[str, ...]]


@frozen
class Charges:
    """Lists by field and tenant; `others` is what tenants without one have."""

    others: SbatchOptions
    lists: Mapping[str, Lists] = field(default_factory=dict)

    def options(self, tenant: str, asked: Mapping[str, str]) -> SbatchOptions:
        """Those of a job; InvalidConfig if it asks for what its tenant does not have."""
        others = self.others
        return replace(
            others,
            account=self._choose("account", others.account, tenant, asked),
            qos=self._choose("qos", others.qos, tenant, asked),
            partition=self._choose("partition", others.partition, tenant, asked),
        )

    def _choose(self, name: str, usual: str, tenant: str, asked: Mapping[str, str]) -> str:
        allowed = self.lists.get(name, {}).get(tenant) or (usual,)
        chosen = asked.get(VARIABLES[name]) or allowed[0]
        if chosen not in allowed:
            raise InvalidConfig(
                f"tenant {tenant!r} may not use {name} {chosen!r} ({VARIABLES[name]})",
                hint=f"it has {', '.join(filter(None, allowed)) or 'none of its own'}"
                f"; an admin changes --engine slurm:{plural(name)}=...",
            )
        return chosen

    def combinations(self) -> Iterable[tuple[str, SbatchOptions]]:
        """Every tenant with each of its choices, so that all can be tried beforehand."""
        for name, by_tenant in self.lists.items():
            for tenant, allowed in by_tenant.items():
                for choice in allowed:
                    yield tenant, self.options(tenant, {VARIABLES[name]: choice})


def plural(name: str) -> str:
    """The engine's parameter with the lists of a field."""
    return "qoses" if name == "qos" else f"{name}s"


def read_lists(text: str, name: str) -> Lists:
    """Lists as they are written in a parameter."""
    lists: dict[str, tuple[str, ...]] = {}
    for part in filter(None, text.split("/")):
        tenant, colon, names = part.partition(":")
        allowed = tuple(filter(None, names.split("+")))
        if not tenant or not colon or not allowed or tenant in lists:
            raise InvalidConfig(
                f"slurm: {plural(name)} has {part!r}",
                hint=f"write {plural(name)}=TENANT:NAME+NAME/TENANT:NAME",
            )
        lists[tenant] = allowed
    return lists
