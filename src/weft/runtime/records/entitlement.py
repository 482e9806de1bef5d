"""What tenants are entitled to over time.

A weighted equal part, or what their jobs ask for within their limits, where that is less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from weft.formulas.fairness.shares import jain_index, share_fairly
from weft.runtime.records.usage import Usage

ByTenant = Mapping[str, float]
Terms = tuple[ByTenant, float, ByTenant, ByTenant]


class Entitlement:
    """GPUs that each tenant is entitled to now, and since when.

    `weights` and `limits` are those of tenants, as they are set now. Rates are worked out
    when time goes on or someone asks: thousands of jobs may come at once.
    """

    def __init__(self) -> None:
        self._at: float | None = None
        self._rates: dict[str, float] = {}
        self._renewed: Terms | None = None
        self.weights: ByTenant = {}
        self.limits: ByTenant = {}

    @property
    def rates(self) -> dict[str, float]:
        """GPUs by tenant."""
        if self._renewed is not None:
            (wanted, room, weights, limits), self._renewed = self._renewed, None
            tenants = [tenant for tenant, gpus in wanted.items() if gpus > 0.0]
            weight = np.array([weights.get(tenant, 1.0) for tenant in tenants])
            most = [min(wanted[tenant], limits.get(tenant, np.inf)) for tenant in tenants]
            given = share_fairly(room, weight, np.array(most))
            self._rates = dict(zip(tenants, given.tolist(), strict=True))
        return self._rates

    def pass_to(self, at: float) -> None:
        """Before anything that happens at `at`: what was wanted until then is what it was."""
        if self._renewed is not None and at != self._at:
            _ = self.rates

    def renew(self, at: float, usage: Usage, wanted: ByTenant, room: float) -> None:
        """Count what was due until `at`; from there on tenants want so much of that many GPUs.

        `wanted` may change at `at`, and later after `pass_to`.
        """
        if at != self._at:
            for tenant, gpus in self.rates.items():
                usage.entitled(tenant, at if self._at is None else self._at, at, gpus)
            self._at = at
        self._renewed = wanted, room, self.weights, self.limits

    def save(self) -> dict[str, Any]:
        """As plain values."""
        rules = {"weights": dict(self.weights), "limits": dict(self.limits)}
        return {"at": self._at, "rates": self.rates, **rules}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `save` made."""
        self._at, self._rates, self._renewed = saved["at"], dict(saved["rates"]), None
        self.weights, self.limits = dict(saved["weights"]), dict(saved.get("limits", {}))

    def rule(self, weights: ByTenant, limits: ByTenant) -> None:
        """Other weights and limits from now on; of limits by kind nothing follows."""
        self.weights = dict(weights)
        self.limits = {name: gpus for name, gpus in limits.items() if "@" not in name}

    @property
    def begun(self) -> float | None:
        """When the rates of now began; None before there were any."""
        return self._at

    def since(self, now: float, first: float, past: float) -> dict[str, float]:
        """GPU-seconds that were due after the last change, between `first` and `past`."""
        open_s = 0.0 if self._at is None else max(min(now, past) - max(self._at, first), 0.0)
        return {tenant: gpus * open_s for tenant, gpus in self.rates.items()}


def summarize_shares(received: Iterable[float | None]) -> float | None:
    """Jain's index of those that something was due to; None where there are none."""
    known = [share for share in received if share is not None]
    return jain_index(np.array(known)) if known else None
