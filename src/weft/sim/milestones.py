"""When jobs came how far: the metrics of workloads whose jobs have a worth or a loss."""

from __future__ import annotations

import numpy as np

from weft.core.table import Floats
from weft.core.trace import Trace
from weft.formulas.tasks import utility_of
from weft.sim.metrics import HOUR, mean

QUALITIES = {"avg_t90_h": 0.90, "avg_t95_h": 0.95}


class Marks:
    """Points of progress to pass: where the loss has fallen by 90 and 95 % of all it falls.

    `ahead` holds those that a job still has before it, in its seconds of work.
    """

    def __init__(self, trace: Trace) -> None:
        self._submitted = {}
        self.ahead: dict[int, dict[str, float]] = {}
        self._passed: dict[str, list[float]] = {name: [] for name in QUALITIES}
        for seq, (job, truth) in enumerate(trace):
            if truth.curve is not None:
                one = truth.length / truth.curve.iterations
                self._submitted[seq] = job.submitted
                self.ahead[seq] = {
                    name: truth.curve.reached(part) * one for name, part in QUALITIES.items()
                }

    def cross(self, seq: int, now: float, before: float, after: float, rate: float) -> None:
        """A job came from `before` to `after` by now, at `rate`; pass what lies between."""
        ahead = self.ahead[seq]
        for name in [name for name, mark in ahead.items() if before < mark <= after + 1e-9]:
            at = now - max(after - ahead.pop(name), 0.0) / rate
            self._passed[name].append(at - self._submitted[seq])
        if not ahead:
            del self.ahead[seq]

    def metrics(self) -> dict[str, float]:
        """Mean times from submission; nothing for a workload without losses."""
        if not self._submitted:
            return {}
        return {name: mean(np.array(times)) / HOUR for name, times in self._passed.items()}


def worth(trace: Trace, started: Floats, ended: Floats) -> dict[str, float]:
    """Sum of the utilities of finished jobs, and the part of jobs started before their target.

    Nothing for a workload in which no job says what it is worth.
    """
    total, known, admitted = 0.0, 0, 0
    for seq, (job, _) in enumerate(trace):
        utility = utility_of(job)
        if utility is None:
            continue
        known += 1
        admitted += bool(started[seq] - job.submitted <= utility.target_s)
        if not np.isnan(ended[seq]):
            total += float(utility.at(float(ended[seq]) - job.submitted))
    return {"total_utility": total, "admitted_fraction": admitted / known} if known else {}
