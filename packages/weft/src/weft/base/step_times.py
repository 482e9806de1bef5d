"""Seconds of a step of data-parallel training: the model of Pollux (OSDI 2021).

A job on `K` replicas over `N` nodes, `m` samples per GPU and `s` accumulation steps:

    T_grad = alpha_c + beta_c m
    T_sync = 0 alone, alpha_r + beta_r (K - 2) in one node, alpha_n + beta_n (K - 2) over several
    T_iter = s T_grad + (T_grad^gamma + T_sync^gamma)^(1/gamma)

Everything broadcasts: parameters may be scalars or arrays over jobs and configurations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

TINY = 1e-8


class StepTime(NamedTuple):
    """The seven parameters, in seconds; `gamma` from 1 (no overlap) to 10 (full overlap)."""

    alpha_c: Any
    beta_c: Any
    alpha_n: Any
    beta_n: Any
    alpha_r: Any
    beta_r: Any
    gamma: Any

    def grad(self, local: Any) -> Any:
        """Seconds to compute one gradient of `local` samples."""
        return self.alpha_c + self.beta_c * local

    def sync(self, nodes: Any, replicas: Any) -> Any:
        """Seconds to synchronise it."""
        if isinstance(replicas, (int, float)) and isinstance(nodes, (int, float)):
            if replicas <= 1:
                return TINY
            extra = max(replicas - 2.0, TINY)
            pair = (self.alpha_n, self.beta_n) if nodes > 1 else (self.alpha_r, self.beta_r)
            return pair[0] + pair[1] * extra
        import numpy as np  # only where arrays are given

        more = np.maximum(replicas - 2.0, TINY)
        apart = self.alpha_n + self.beta_n * more
        together = self.alpha_r + self.beta_r * more
        return np.where(replicas > 1, np.where(nodes > 1, apart, together), TINY)

    def step(self, nodes: Any, replicas: Any, local: Any) -> Any:
        """Seconds of one optimiser step without accumulation."""
        a, b, g = self.grad(local), self.sync(nodes, replicas), self.gamma
        return (a**g + b**g) ** (1.0 / g)

    def throughput(self, nodes: Any, replicas: Any, local: Any, accumulate: Any = 1) -> Any:
        """Samples per second; `accumulate` steps make an update."""
        took = (accumulate - 1) * self.grad(local) + self.step(nodes, replicas, local)
        return replicas * local * accumulate / took
