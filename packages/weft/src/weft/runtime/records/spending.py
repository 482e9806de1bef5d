"""The GPU time of a job by kind of GPU, and how much of it came to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from weft.core.model.job import LinearQuantity
from weft.frozen import frozen


@frozen
class Spending:
    """GPU-seconds of a job up to the last change of its rate.

    `mix` is what part of its GPUs is of which kind since then. `idle` were held and not used, since
    `idle_since` again. `lost` is work that was done again after a restart, without what was idle.
    """

    kinds: Mapping[str, float] = field(default_factory=dict)
    mix: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    lost: float = 0.0
    idle_since: float | None = None

    def at(self, now: float, gpu_s: LinearQuantity) -> Spending:
        """All up to `now`, for a job whose GPU time is `gpu_s`."""
        more = gpu_s.rate * (now - gpu_s.since)
        kinds = dict(self.kinds)
        for kind, part in self.mix.items() if more else ():
            kinds[kind] = kinds.get(kind, 0.0) + part * more
        if self.idle_since is None:
            return replace(self, kinds=kinds)
        since = max(self.idle_since, gpu_s.since)
        idle = self.idle + gpu_s.rate * (now - since)
        return replace(self, kinds=kinds, idle=idle, idle_since=now)


NO_SPENDING = Spending()
