"""Policies as a live scheduler runs them: with jobs without GPUs, pauses, and a stand-in."""

from __future__ import annotations

from dataclasses import replace

from weft.core.events.event import Event, PolicyChanged
from weft.core.plan.about import terms_of
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Policy
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.runtime.loop.admit import policy_of
from weft.stack.layers import surround

SAFE = PartSpec("fifo", {"backfill": True})


def live_policy(spec: PartSpec) -> Policy:
    """The policy that is described, for jobs that really fail."""
    return surround(policy_of(spec))


def with_terms(event: Event) -> Event:
    """Add the new policy's own terms to a change of policy."""
    if not isinstance(event, PolicyChanged) or event.terms is not None:
        return event
    return replace(event, terms=terms_of(policy_of(replace(event.policy, wrappers=())).about))


def propose(scheduler: Scheduler, now: float) -> Plan:
    """The plan of the scheduler's policy; without any job there is nothing to ask it."""
    if not len(scheduler.state.table):
        return Plan(memory=scheduler.memory)
    return scheduler.propose(now)


def stand_in(spec: PartSpec) -> PartSpec:
    """The fallback order under the rules of `spec`: the first jobs that fit start, none stops."""
    return replace(SAFE, wrappers=spec.wrappers)
