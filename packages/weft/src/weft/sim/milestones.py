"""Times at which jobs came how far: metrics of workloads whose jobs have a worth or a loss."""

from __future__ import annotations

import numpy as np

from weft.core.model.trace import Trace
from weft.core.state.cells import Floats
from weft.formulas.training.tasks import utility_of

PARTS = (0.90, 0.95)


class LossMilestones:
    """Points of progress to pass: where the loss has fallen by 90 and 95 % of all it falls.

    `ahead` holds those that a job still has before it, in its seconds of work.
    """

    def __init__(self, trace: Trace) -> None:
        self._submitted = {}
        self.ahead: dict[int, dict[float, float]] = {}
        self._passed: dict[float, list[float]] = {part: [] for part in PARTS}
        for seq, (job, truth) in enumerate(trace):
            if truth.curve is not None:
                iteration = truth.length / truth.curve.iterations
                self._submitted[seq] = job.submitted
                self.ahead[seq] = {part: truth.curve.reached(part) * iteration for part in PARTS}

    def record_progress(
        self, seq: int, now: float, before: float, after: float, rate: float
    ) -> None:
        """A job came from `before` to `after` by now, at `rate`; pass what lies between."""
        ahead = self.ahead[seq]
        for part in [part for part, mark in ahead.items() if before < mark <= after + 1e-9]:
            at = now - max(after - ahead.pop(part), 0.0) / rate
            self._passed[part].append(at - self._submitted[seq])
        if not ahead:
            del self.ahead[seq]

    def reached(self) -> dict[float, Floats]:
        """Seconds from submission to each part of the fall; nothing where losses are not known."""
        if not self._submitted:
            return {}
        return {part: np.array(times) for part, times in self._passed.items()}


def worth(trace: Trace, started: Floats, ended: Floats) -> tuple[float, float] | tuple[None, None]:
    """Sum of the utilities of finished jobs, and the part of jobs started before their target.

    None for a workload in which no job says what it is worth.
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
    return (total, admitted / known) if known else (None, None)
