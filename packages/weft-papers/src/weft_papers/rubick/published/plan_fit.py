"""Fit the coefficients of `PlanLaw` to runs that were measured, as Rubick's authors do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from weft.core.model.execution import Execution
from weft.core.state.cells import Floats
from weft.perf.plans.learnt import Coefficients, PlanLaw
from weft.solve.scipy_optimize import scipy_optimize

START = Coefficients(1.5, 1.0, 0.001, 1.0, 1.0, 1.0, 1.0)
LEAST = (1.0, 1.0, 1e-8, 1e-8, 1e-8, 0.0, 0.0)
MOST = (10.0, *([inf] * 6))
STEP = 1e-30  # of derivatives along the imaginary axis: they are exact


class PlanRun(NamedTuple):
    """A measured update of data parallelism, in milliseconds.

    `sync` is the backward pass with all communication, `update` that of the parameters; nan where
    only the whole was measured.
    """

    plan: Execution
    forward: float
    whole: float
    sync: float = float("nan")
    update: float = float("nan")
    threads: float = 1.0


def fit_plans(law: PlanLaw, runs: Sequence[PlanRun], start: Coefficients = START) -> PlanLaw:
    """The law with the coefficients that explain these runs best."""
    measured = _Measured(law, runs)
    answer = scipy_optimize().minimize(
        lambda k: float(measured.loss(k)),
        np.array(start),
        jac=measured.slope,
        bounds=list(zip(LEAST, MOST, strict=True)),
        method="L-BFGS-B",
    )
    return replace(law, k=Coefficients(*(float(value) for value in answer.x)))


@dataclass(init=False, slots=True)
class _Measured:
    """Runs as columns, and how far a law is from them."""

    volume: Floats
    moved: Floats
    forward: Floats
    passes: Floats
    offload: Floats
    update: Floats
    hosted: Floats
    seen: Floats

    def __init__(self, law: PlanLaw, runs: Sequence[PlanRun]) -> None:
        plans = [run.plan for run in runs]
        gpus = np.array([float(plan.data) for plan in plans])
        self.offload = np.array([float(plan.offload) for plan in plans])
        zero = np.array([plan.zero > 0 for plan in plans])
        threads = np.array([run.threads for run in runs])
        self.volume = 8.0 * law.params * (gpus - 1.0) / gpus / law.nvlink
        self.moved = self.offload * 4.0 * law.params / gpus / law.pcie
        self.forward = np.array([run.forward for run in runs])
        self.passes = np.array([2.0 if plan.checkpointing else 1.0 for plan in plans])
        self.update = (1.0 - self.offload) * law.params / np.where(zero, gpus, 1.0)
        self.hosted = self.offload * law.params / (gpus * threads)
        self.seen = np.log(np.array([(run.sync, run.update, run.whole) for run in runs]).T)

    def loss(self, k: Any) -> Any:
        """Root mean square errors of logarithms, of each part that was measured, summed."""
        k_bwd, k_sync, k_opt, k_os, k_const, k_off, k_swap = k
        sync = _overlap(self.volume, k_bwd * self.forward, k_sync)
        sync = sync + self.offload * k_off + self.moved
        update = k_opt * self.update + k_os * self.hosted + k_swap + self.moved
        whole = self.passes * self.forward + sync + update + k_const
        total: Any = 0.0
        for predicted, seen in zip((sync, update, whole), self.seen, strict=True):
            known = ~np.isnan(seen)
            if known.any():
                total += np.sqrt(((np.log(predicted[known]) - seen[known]) ** 2).mean())
        return total

    def slope(self, k: Floats) -> Floats:
        """Return the slope of the loss by each coefficient."""
        steps = STEP * 1j * np.eye(len(k))
        return np.array([self.loss(k + step).imag / STEP for step in steps])


def _overlap(left: Any, other: Any, how: Any) -> Any:
    """`weft.perf.plans.learnt.overlap` of columns, along the imaginary axis as well."""
    first = np.real(left) >= np.real(other)
    longer, shorter = np.where(first, left, other), np.where(first, other, left)
    return longer * np.exp(np.log(1.0 + (shorter / longer) ** how) / how)
