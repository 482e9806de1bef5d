"""Reasons that a wrapper gives are told once: when they are new, and when they hold no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Reason
from weft.core.plan.view import View


@dataclass(frozen=True, slots=True)
class Memory:
    """The inner policy's memory, and what jobs were told last."""

    inner: object = None
    told: Mapping[JobId, str] = field(default_factory=dict)


def recall(view: View) -> Memory:
    """What was kept at the last decision."""
    return view.memory if isinstance(view.memory, Memory) else Memory()


def tell_news(view: View, plan: Plan, why: Mapping[JobId, Reason], known: Memory) -> Plan:
    """The plan with reasons that were not given before; logs stay small."""
    texts = {job: one.text for job, one in why.items()}
    news = {
        job: one
        for job, one in why.items()
        if known.told.get(job) != texts[job] or plan.reasons.get(job) == ""
    }
    cleared = [job for job in known.told if job not in texts and job in view.table]
    return replace(plan.explained(news, cleared), memory=Memory(plan.memory, texts))
