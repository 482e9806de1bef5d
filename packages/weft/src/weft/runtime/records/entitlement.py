"""The GPUs that tenants are entitled to over time.

What is their own first, as far as their jobs ask for it within their limits; of the rest a weighted
equal part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from typing import Any

import numpy as np

from weft.core.codec.plain_values import encode
from weft.core.events.event import Event, PolicyChanged
from weft.core.spec.part_spec import PartSpec
from weft.formulas.fairness.shares import jain_index, share_fairly
from weft.frozen import frozen
from weft.runtime.records.usage import TenantUsage

ByTenant = Mapping[str, float]


@frozen
class TenantTerms:
    """Weights and limits of tenants, GPUs of their own or their groups', and these groups."""

    weights: ByTenant = field(default_factory=dict)
    limits: ByTenant = field(default_factory=dict)
    own: ByTenant = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: PartSpec) -> TenantTerms:
        """The rules around a policy; of limits by kind nothing follows."""
        params = {wrapper.name: wrapper.params for wrapper in policy.wrappers}
        quota, lend = params.get("quota", {}), params.get("lend", {})
        limits = {name: gpus for name, gpus in quota.get("limits", {}).items() if "@" not in name}
        weights = {**quota.get("weights", {}), **lend.get("weights", {})}
        return cls(weights, limits, dict(lend.get("own", {})), dict(lend.get("parents", {})))

    def divide(self, wanted: ByTenant, room: float) -> dict[str, float]:
        """GPUs by tenant: its own, then its groups', smallest first, then parts of the rest."""
        tenants = [tenant for tenant, gpus in wanted.items() if gpus > 0.0]
        most = np.array([min(wanted[who], self.limits.get(who, np.inf)) for who in tenants])
        weight = np.array([self.weights.get(who, 1.0) for who in tenants])
        given = np.zeros(len(tenants))
        lines = [self._line(who) for who in tenants]
        owners = sorted(self.own, key=lambda name: -len(self._line(name)))
        for owner, gpus in [*((name, self.own[name]) for name in owners), ("", np.inf)]:
            members = np.array([not owner or owner in line for line in lines], dtype=bool)
            left = min(gpus - given[members].sum(), room - given.sum())
            given += share_fairly(max(left, 0.0), weight, np.where(members, most - given, 0.0))
        return dict(zip(tenants, given.tolist(), strict=True))

    def _line(self, who: str) -> list[str]:
        line = [who]
        while line[-1] in self.parents:
            line.append(self.parents[line[-1]])
        return line


class Entitlement:
    """GPUs that each tenant is entitled to now, and since when.

    `terms` are those of the policy that decides. Rates are worked out when time goes on or
    someone asks: thousands of jobs may come at once.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._rates: dict[str, float] = {}
        self._renewed: tuple[ByTenant, float, TenantTerms] | None = None
        self.terms = TenantTerms()

    @property
    def rates(self) -> dict[str, float]:
        if self._renewed is not None:
            (wanted, room, terms), self._renewed = self._renewed, None
            self._rates = terms.divide(wanted, room)
        return self._rates

    def pass_to(self, at: float, event: Event) -> None:
        """Before an event of `at`: what was wanted until then is what it was; take its rules."""
        if self._renewed is not None and at != self._at:
            _ = self.rates
        if isinstance(event, PolicyChanged):
            self.terms = TenantTerms.of(event.policy)

    def update_rates(self, at: float, usage: TenantUsage, wanted: ByTenant, room: float) -> None:
        """Count what was due until `at`; from there on tenants want so much of that many GPUs.

        `wanted` may change at `at`, and later after `pass_to`.
        """
        if at != self._at:
            for tenant, gpus in self.rates.items():
                usage.entitled(tenant, at if self._at is None else self._at, at, gpus)
            self._at = at
        self._renewed = wanted, room, self.terms

    def save(self) -> dict[str, Any]:
        return {"at": self._at, "rates": self.rates, **encode(self.terms)}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._at, self._rates, self._renewed = saved["at"], dict(saved["rates"]), None
        names = [each.name for each in fields(TenantTerms)]
        self.terms = TenantTerms(**{name: dict(saved.get(name, {})) for name in names})

    @property
    def rates_since(self) -> float | None:
        """The time at which the rates of now began; None before there were any."""
        return self._at

    def due_between(self, now: float, first: float, past: float) -> dict[str, float]:
        """GPU-seconds that were due after the last change, between `first` and `past`."""
        open_s = 0.0 if self._at is None else max(min(now, past) - max(self._at, first), 0.0)
        return {tenant: gpus * open_s for tenant, gpus in self.rates.items()}


def jain_of_known(received: Iterable[float | None]) -> float | None:
    """Jain's index of those that something was due to; None where there are none."""
    known = [share for share in received if share is not None]
    return jain_index(np.array(known)) if known else None
