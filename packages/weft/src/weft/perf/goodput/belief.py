"""Beliefs about one adaptive job, and how its reports become measurements."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.base.step_fit import FitRow
from weft.core.events.report import Report
from weft.core.state.cells import Floats
from weft.perf.goodput.curves import CandidateSteps
from weft.perf.goodput.measurements import StepMeasurements

NO_NOISE = (1.0, 0.0)  # of a job that does not measure it: no update is worth more than another

LEAST_S, MOST_S = 1e-9, 1e7  # of a step


@dataclass(slots=True)
class JobBelief:
    """Measurements and limits of one job.

    `measured` are its measurements by GPU kind, `mixed` those of all kinds together, `noise` the
    squared norm and the variance of its gradients, `batch` the one it trains with, `most` the most
    replicas it ran with. `steps` are those of the
    inputs `steps_of`: most rounds bring new noise alone. The rest are answers that hold until
    `version` changes.
    """

    measured: dict[str, StepMeasurements] = field(default_factory=dict)
    mixed: StepMeasurements = field(default_factory=lambda: StepMeasurements(close=0.0))
    noise: tuple[float, float] = NO_NOISE
    batch: float = 1.0
    most: int = 0
    version: int = 0
    steps: CandidateSteps | None = field(default=None, init=False)
    steps_of: tuple[object, ...] = field(default=(), init=False)
    curve: Floats | None = field(default=None, init=False)
    curve_of: tuple[object, ...] = field(default=(), init=False)
    blind: Floats | None = field(default=None, init=False)
    blind_of: tuple[object, ...] = field(default=(), init=False)


def row_of(report: Report) -> FitRow | None:
    """The step time in a report, one synchronised step without accumulation; None if none is."""
    local, grad, last = report.per_gpu, report.grad_s, report.last_s
    if local is None or grad is None or grad <= 0.0 or local < 1.0:
        return None
    micros = report.accumulate or 1.0
    if last is None:
        if report.step_s is None:
            return None
        last = report.step_s - (micros - 1.0) * grad
        if last <= 0.0:
            return None
        last = max(last, grad)
    replicas = report.replicas
    if replicas is None:
        total = local * micros if report.batch is None else report.batch
        replicas = max(round(total / (local * micros)), 1)
    if not LEAST_S <= min(grad, last) <= max(grad, last) <= MOST_S:
        return None  # whatever was measured, it was not a step
    return FitRow(int(report.nodes or 1.0), int(replicas), int(local), grad, last)
