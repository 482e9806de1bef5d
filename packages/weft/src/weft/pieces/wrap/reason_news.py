"""A wrapper reports its reasons once: when they are new, and when they no longer hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Reason
from weft.core.plan.view import View
from weft.stack.wrapper import WrapperMemory


def tell_news(view: View, plan: Plan, why: Mapping[JobId, Reason], kept: WrapperMemory) -> Plan:
    """The plan with reasons that were not given before, so that logs stay small.

    It remembers `kept` with the inner policy's memory and the present reasons of jobs.
    """
    texts = {job: reason.text for job, reason in why.items()}
    news = {
        job: reason
        for job, reason in why.items()
        if kept.told.get(job) != texts[job] or plan.reasons.get(job) == ""
    }
    cleared = [job for job in kept.told if job not in texts and job in view.table]
    memory = replace(kept, inner=plan.memory, told=texts)
    return replace(plan.explained(news, cleared), memory=memory)
