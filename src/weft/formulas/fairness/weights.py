"""What users and tenants weigh against each other, from the weights that somebody named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.core.errors import InvalidConfig


def weigh_owners(
    owners: Iterable[tuple[str, str]], weights: Mapping[str, float]
) -> dict[str, float]:
    """The weight of each owner of jobs, given with its tenant, in order.

    A user that is named has its own; the others of a tenant that is named divide the tenant's
    equally; everybody else has 1.
    """
    tenant_of = dict(owners)
    sharing: dict[str, int] = {}
    for owner, tenant in tenant_of.items():
        if owner not in weights:
            sharing[tenant] = sharing.get(tenant, 0) + 1
    return {
        owner: weights[owner]
        if owner in weights
        else weights[tenant] / sharing[tenant]
        if tenant in weights
        else 1.0
        for owner, tenant in tenant_of.items()
    }


def check_weights(who: str, weights: Mapping[str, float]) -> None:
    """Raise InvalidConfig, in the name of `who`, unless every weight is above 0."""
    for name, weight in weights.items():
        if not 0.0 < weight < float("inf"):
            raise InvalidConfig(
                f"{who} gives {name!r} a weight of {weight:g}",
                hint="a weight is above 0; users and tenants that are not named have 1",
            )
