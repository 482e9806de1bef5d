"""Reports of trainings, as `weft_train` sends them."""

from __future__ import annotations

from weft.core.events.report import Report


def training_report(
    replicas: int, progress: float, step_s: float, grad_s: float, *, grad_var: float, work: float
) -> Report:
    """Of a job with 64 samples for each replica."""
    return Report(
        step_s=step_s,
        grad_s=grad_s,
        per_gpu=64.0,
        accumulate=1.0,
        batch=64.0 * replicas,
        replicas=float(replicas),
        grad_sqr=1.0,
        grad_var=grad_var,
        progress=progress,
        work=work,
    )
