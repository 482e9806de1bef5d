"""What tenants may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

ANY = ""


@frozen
class Rules:
    """Limits on GPUs held at once by (tenant, kind), ANY for all kinds; weights by tenant."""

    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, tenant: str) -> dict[str, float]:
        """The limits of one tenant by kind."""
        return {kind: most for (who, kind), most in self.limits.items() if who == tenant}


def read_rules(limits: Mapping[str, float], weights: Mapping[str, float]) -> Rules:
    """From limits of `tenant` and `tenant@kind`, and weights of `tenant`."""
    most: dict[tuple[str, str], float] = {}
    for who, number in limits.items():
        tenant, _, kind = who.partition("@")
        if not tenant or not number >= 0.0:
            raise InvalidConfig(
                f"limit {who}={number:g} is not a number of GPUs of a tenant",
                hint="for example vision=8 or vision@a100=4",
            )
        most[tenant, kind] = number
    for tenant, number in weights.items():
        if not tenant or not number > 0.0:
            raise InvalidConfig(f"weight {tenant}={number:g} must be above 0")
    return Rules(most, dict(weights))


def fill(
    capacity: float, demand: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Capacity by weight, no tenant above its demand: what one leaves, the others divide.

    A tenant without a weight has weight 1.
    """
    target = dict.fromkeys(demand, 0.0)
    open_to = {tenant for tenant, wanted in demand.items() if wanted > 0.0}
    left = capacity
    while open_to and left > 1e-9:
        total = sum(weights.get(tenant, 1.0) for tenant in open_to)
        level = min((demand[t] - target[t]) / weights.get(t, 1.0) for t in open_to)
        step = min(level, left / total)
        for tenant in open_to:
            target[tenant] += step * weights.get(tenant, 1.0)
        left -= step * total
        open_to = {t for t in open_to if demand[t] - target[t] > 1e-9}
    return target
