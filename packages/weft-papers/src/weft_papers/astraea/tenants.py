"""The first phase: GPUs go to tenants one job at a time, the least served first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.frozen import frozen

SLACK = 1e-9


@dataclass(slots=True)
class AstraeaTenant:
    """GPU time that a tenant is due and had, and the gangs that it wants to start."""

    name: str
    quota: float
    used: float
    utilised: float
    weighted: float
    gangs: list[float]

    @property
    def ratio(self) -> float:
        """GPU time used over that of its quota, as far back as is looked; 1 without a past."""
        return self.utilised / self.weighted if self.weighted > 0.0 else 1.0

    @property
    def filled(self) -> float:
        """The part of its quota that it has now."""
        return self.used / max(self.quota, SLACK)


@frozen
class GangGrant:
    """One gang promised to a tenant."""

    tenant: str
    gpus: float


def grant_quotas(
    free: float,
    tenants: Sequence[AstraeaTenant],
    lease: float,
    low_share: float,
    *,
    in_order: bool = True,
) -> tuple[dict[str, float], list[GangGrant]]:
    """GPUs each tenant may use in the next lease, and the grants in their order.

    The tenant with the least part of its quota is next if that is below `low_share`, else the
    one with the least GPU time for its quota; ties go to the first, or, unless `in_order`, to the
    one with less in the past. A grant counts as a whole lease in the tenant's past; a gang that
    does not fit is skipped.
    """
    allowed = {tenant.name: tenant.used for tenant in tenants}
    past = {tenant.name: tenant.ratio for tenant in tenants}
    filled = {tenant.name: tenant.filled for tenant in tenants}
    wanting = {tenant.name: (tenant, iter(tenant.gangs)) for tenant in tenants if tenant.gangs}
    grants: list[GangGrant] = []
    while free > SLACK and wanting:
        name = _next(wanting, filled, past, low_share, in_order=in_order)
        tenant, gangs = wanting[name]
        gpus = next((gang for gang in gangs if gang <= free + SLACK), None)
        if gpus is None:
            del wanting[name]
            continue
        grants.append(GangGrant(name, gpus))
        free -= gpus
        allowed[name] += gpus
        tenant.utilised += gpus * lease
        filled[name] = allowed[name] / max(tenant.quota, SLACK)
        whole = tenant.weighted + tenant.quota * lease
        past[name] = tenant.utilised / whole if whole > 0.0 else 1.0
    return allowed, grants


def _next(
    wanting: Mapping[str, object],
    filled: Mapping[str, float],
    past: Mapping[str, float],
    low_share: float,
    *,
    in_order: bool,
) -> str:
    lowest = min(wanting, key=lambda name: (filled[name], 0.0 if in_order else past[name]))
    return lowest if filled[lowest] < low_share else min(wanting, key=lambda name: past[name])
