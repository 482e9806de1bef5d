"""What tenants may hold, as texts and as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from weft.core.errors import InvalidConfig

ANY = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits on GPUs held at once by (tenant, kind), ANY for all kinds; weights by tenant."""

    limits: Mapping[tuple[str, str], float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, tenant: str) -> dict[str, float]:
        """The limits of one tenant by kind."""
        return {kind: most for (who, kind), most in self.limits.items() if who == tenant}


@lru_cache(maxsize=8)
def read_rules(limits: tuple[str, ...], weights: tuple[str, ...]) -> Rules:
    """From `tenant=8`, `tenant@kind=4` and `tenant=2.5`."""
    most: dict[tuple[str, str], float] = {}
    for text in limits:
        who, number = _pair("limit", text)
        tenant, _, kind = who.partition("@")
        most[tenant, kind] = number
    shares: dict[str, float] = {}
    for text in weights:
        who, number = _pair("weight", text)
        if not number > 0.0:
            raise InvalidConfig(f"weight {text!r} must be above 0")
        shares[who] = number
    return Rules(most, shares)


def _pair(what: str, text: str) -> tuple[str, float]:
    who, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not equals or not who or not value >= 0.0:
        raise InvalidConfig(
            f"cannot read {what} {text!r}", hint="for example vision=8 or vision@a100=4"
        )
    return who, value


def fill(
    capacity: float, demand: Mapping[str, float], weights: Mapping[str, float]
) -> dict[str, float]:
    """Capacity by weight, nobody above their demand: what one leaves, the others divide.

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
