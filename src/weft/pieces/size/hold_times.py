"""How long jobs of a model keep GPUs of a kind before they are taken off again.

A rise pays for its restart only while it lasts: where others push jobs off soon, it is worth less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

import numpy as np

from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.frozen import frozen


@frozen
class HoldTimes:
    """Seconds held and times lost by model and kind, both forgotten with a half-life."""

    at: float = 0.0
    held: Mapping[str, float] = field(default_factory=dict)
    lost: Mapping[str, float] = field(default_factory=dict)

    def age(self, view: View, half_s: float) -> HoldTimes:
        """Count the time since the last decision."""
        seconds = max(view.now - self.at, 0.0)
        kept = 0.5 ** (seconds / half_s)
        held = {key: kept * value for key, value in self.held.items()}
        for job, on in zip(view.table.jobs, view.table.allocations, strict=True):
            if on is not None:
                key = key_of(job.model, view.cluster.kind_of(on))
                held[key] = held.get(key, 0.0) + seconds
        return HoldTimes(view.now, held, {key: kept * value for key, value in self.lost.items()})

    def lose(self, keys: Collection[str]) -> HoldTimes:
        """Jobs of these models lost these kinds just now."""
        lost = dict(self.lost)
        for key in keys:
            lost[key] = lost.get(key, 0.0) + 1.0
        return HoldTimes(self.at, self.held, lost)

    def expect(self, view: View, prior_s: float) -> Floats:
        """Rows x kinds: seconds that a job may expect to keep a kind."""
        kinds = view.cluster.kinds
        by_model = {
            model: [self._last(key_of(model, kind), prior_s) for kind in kinds]
            for model in {job.model for job in view.table.jobs}
        }
        return np.array([by_model[job.model] for job in view.table.jobs])

    def _last(self, key: str, prior_s: float) -> float:
        return (self.held.get(key, 0.0) + prior_s) / (self.lost.get(key, 0.0) + 1.0)


def key_of(model: str, kind: str) -> str:
    """One string, so that it can be written down."""
    return f"{kind}/{model}"
