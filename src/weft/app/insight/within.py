"""Questions about the live scheduler as work that is done aside, within so much CPU time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.app.insight.changes import Changes
from weft.app.insight.explain import Advice, Trial, Why, explain, plan
from weft.app.insight.present import Present
from weft.app.insight.purse import Purse
from weft.app.serve.rules import Quotas
from weft.core.model.job import Job, JobId
from weft.core.plan.reasons import Reason
from weft.core.spec.part_spec import PartSpec

Report = Callable[[Any], None]


def explain_within(
    purse: tuple[float, float],
    present: Present,
    job: JobId,
    waits: Reason | None,
    more: Sequence[Advice],
    _report: Report,
) -> Why:
    """Why a job waits or holds what it holds; `purse` are its CPU seconds and a decision's."""
    return explain(present, job, waits, more, Purse(*purse))


def plan_within(
    cpu_s: float,
    change: Changes,
    present: Present,
    policy: PartSpec,
    rules: Quotas,
    job: Job,
    _report: Report,
) -> Trial:
    """What would happen to a job where something is different."""
    purse = Purse(cpu_s)
    return plan(change.present(present, policy, rules), job, purse)
