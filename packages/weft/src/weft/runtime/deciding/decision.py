"""Decides when to ask the policy, and what decides if it fails.

News that comes faster than decisions can be made is decided together: after a decision there is a
pause in proportion to what it took. A cheap policy on a quiet cluster decides at every event; an
expensive one under load takes a bounded part of the process, and requests are answered meanwhile.

A policy that fails must not stop the service. A safe order under the same rules decides in its
place, the policy is asked again after a while, and after some failures in a row not any more, until
a person intervenes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from weft.core.errors import WeftError
from weft.core.events.actions import Action, Start, Stop
from weft.core.events.event import Event, PolicyChanged, Woken
from weft.core.latency import Latency
from weft.core.model.job import JobId
from weft.core.plan.kept_back import could_start
from weft.core.plan.plan import Plan
from weft.core.plan.reasons import Blocker
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.core.state.state import State
from weft.frozen import frozen
from weft.runtime.deciding.decider import Decider, InProcess, PolicyFailed
from weft.runtime.deciding.live_policy import SAFE, live_policy, stand_in
from weft.runtime.loop.clock import Clock

log = logging.getLogger(__name__)

PAUSE = 1.0  # times what a decision took: at most half of a processor's time is spent deciding
LONGEST_S = 1.0
AGAIN_S = (5.0, 30.0)  # until a policy that failed is asked again; then it is given up
RECENT = 1_000  # decisions whose numbers are kept for those who ask
NOBODY_S = 60.0  # until a policy is asked again where even the safe order failed
AT_ONCE_S, FIRST_S, LONGEST_LOOK_S = 1.0, 15.0, 960.0  # at once where a job fits into what is free


@frozen
class Worked:
    """The time of a decision, and the numbers that it came with: a gap, prices by kind."""

    took_s: float
    numbers: Mapping[str, float]


@frozen
class PolicyVerdict:
    """A plan and the policy that made it, None for the configured one.

    `given_up` says that the policy is not asked any more.
    """

    plan: Plan
    by: PartSpec | None = None
    given_up: PolicyChanged | None = None
    took_s: float = 0.0


class Decisions:
    """Decisions at their pace; `trouble` says what is wrong now, empty while all is well.

    `given_up` is what is wrong until a person chooses a policy; `failures` counts them all.
    """

    def __init__(
        self, clock: Clock, decider: Decider | None = None, policy: PartSpec = SAFE
    ) -> None:
        self.policy = policy
        self.trouble = ""
        self.given_up = ""
        self.undecided = ""  # why no policy decides
        self.asking = False  # a decision is being made
        self.doubted: frozenset[JobId] = frozenset()  # could start, despite their reason
        self.failures = 0
        self.took = Latency()
        self.recent: dict[int, Worked] = {}  # by number, those of this process
        self._clock = clock
        self._decider = decider or InProcess()
        self._not_before = float("-inf")
        self._second_look = SecondLook()
        self._left_out: set[JobId] = set()  # jobs that the policy fails with, as far as was logged
        self._in_a_row = 0
        self._again_at = float("-inf")

    @property
    def spent_s(self) -> float:
        """Seconds of a processor that the last decision took."""
        return self._decider.spent_s

    def change(self, event: PolicyChanged) -> None:
        """Another policy decides from here on, with every chance there is."""
        self.policy = event.policy
        self.given_up = (
            f"policy {_bare(event.instead_of)!r} failed too often ({event.reason}); "
            f"{_bare(event.policy)!r} decides instead until a person chooses"
            if event.instead_of
            else ""
        )
        self.trouble = ""
        self._in_a_row, self._again_at = 0, float("-inf")

    def put_off(
        self, scheduler: Scheduler, now: float, noted: Sequence[tuple[float, Event]]
    ) -> bool:
        """True if what was `noted` is decided later, together with what comes until then."""
        asked = any(isinstance(event, Woken) for _, event in noted)
        if self._not_before <= now or asked or scheduler.policy.about.every is not None:
            return False
        scheduler.put_off(self._not_before)
        return True

    async def ask(self, scheduler: Scheduler, now: float) -> PolicyVerdict | None:
        """The verdict now.

        None if no policy can decide: nothing changes until it is asked again.
        """
        self.asking = True
        try:
            with self.took.measured():
                verdict = await self._ask(scheduler, now)
        finally:
            self.asking = False
        self.undecided = self.trouble if verdict is None else ""
        pause_s = min(PAUSE * self.spent_s, LONGEST_S)
        self._not_before = self._clock.now + pause_s * self._clock.speed
        return None if verdict is None else replace(verdict, took_s=self.took.last_s)

    def adopt(self, scheduler: Scheduler, now: float, verdict: PolicyVerdict) -> list[Action]:
        """Make it a fact, and say so in the service's own log."""
        actions = scheduler.adopt(now, verdict.plan, verdict.by)
        again = self._second_look.next_check(now, verdict.plan, scheduler.state)
        if again is not None and scheduler.policy.about.every is None:
            scheduler.put_off(again)
        self.recent[scheduler.state.decisions] = Worked(verdict.took_s, verdict.plan.numbers)
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]
        self._log_left_out(scheduler.state, verdict.plan)
        who = (verdict.by or self.policy).text
        facts = facts_of(scheduler.state, who, actions)
        words = " ".join(f"{name}={value}" for name, value in facts.items())
        log.info("%s took_ms=%.1f", words, verdict.took_s * 1e3)
        trace_decision(facts, verdict.took_s)
        return actions

    def _log_left_out(self, state: State, plan: Plan) -> None:
        """Report once for each job that the policy fails with it: else the bug goes unseen."""
        failing = {job for job, why in plan.blockers.items() if why is Blocker.SPARED}
        for job in sorted(failing - self._left_out):
            log.error("decision=%d job=%s %s", state.decisions, job, plan.reasons[job])
        self._left_out = failing

    async def _ask(self, scheduler: Scheduler, now: float) -> PolicyVerdict | None:
        if now < self._again_at:
            return self._safely(scheduler, now)
        try:
            plan = await self._decider.plan(scheduler, self.policy, now)
        except Exception as error:  # a policy's bug, of whatever kind: the service goes on
            return self._failed(scheduler, now, error)
        self.trouble = ""
        self._in_a_row, self._again_at = 0, float("-inf")
        return PolicyVerdict(plan)

    def _failed(self, scheduler: Scheduler, now: float, error: Exception) -> PolicyVerdict | None:
        self.failures += 1
        self._in_a_row += 1
        what = error.what if isinstance(error, WeftError) else f"{type(error).__name__}: {error}"
        trace = error.trace if isinstance(error, PolicyFailed) else ""
        log.error(
            "decision=%d policy=%s failed=%d: %s%s",
            scheduler.state.decisions,
            self.policy.text,
            self._in_a_row,
            what,
            f"\n{trace}" if trace else "",
            exc_info=None if isinstance(error, PolicyFailed) else error,
        )
        self.trouble = f"policy {_bare(self.policy)!r} failed: {what}"
        safe = stand_in(self.policy)
        if self._in_a_row > len(AGAIN_S) and safe != self.policy:
            given_up = PolicyChanged(safe, self.policy, what)
            verdict = self._safely(scheduler, now)
            return None if verdict is None else replace(verdict, given_up=given_up)
        pause_s = AGAIN_S[min(self._in_a_row, len(AGAIN_S)) - 1]
        self._again_at = now + pause_s * self._clock.speed
        return self._safely(scheduler, now)

    def _safely(self, scheduler: Scheduler, now: float) -> PolicyVerdict | None:
        """The verdict of the safe order, until the policy is asked again."""
        safe = stand_in(self.policy)
        try:
            plan = scheduler.propose(now, live_policy(safe))
        except Exception as error:
            log.exception("decision=%d policy=%s failed", scheduler.state.decisions, safe.text)
            self.trouble += f"; and so did {_bare(safe)!r}: {error}"
            scheduler.put_off(now + NOBODY_S * self._clock.speed)
            return None
        if self._again_at > now:
            wake = plan.wake_at
            soonest = self._again_at if wake is None else min(wake, self._again_at)
            plan = replace(plan, wake_at=soonest)
        return PolicyVerdict(plan, safe)


def _bare(policy: PartSpec) -> str:
    """As a person named it, without the rules around it."""
    return replace(policy, wrappers=()).text


def facts_of(state: State, policy: str, actions: Sequence[Action]) -> dict[str, str | int | float]:
    """A decision in a few words, for the service's own log and for traces."""
    return {
        "decision": state.decisions,
        "policy": policy,
        "active": len(state.table),
        "started": sum(isinstance(action, Start) for action in actions),
        "stopped": sum(isinstance(action, Stop) for action in actions),
    }


# ---- Decisions as spans of OpenTelemetry, where someone collects them
#
# Only its API is used: `opentelemetry-instrument weft serve`, or any program that configures an
# SDK, says where spans go. Without one of its variables in the environment nothing is imported.


WISHES = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT")


def trace_decision(
    facts: Mapping[str, str | int | float], took_s: float, tracer: Any = None
) -> None:
    """One span that ended now, with what was decided as its attributes."""
    used = tracer or find_tracer()
    if used is None:
        return
    end = time.time_ns()
    span = used.start_span("weft.decision", start_time=end - int(took_s * 1e9))
    for name, value in facts.items():
        span.set_attribute(f"weft.{name}", value)
    span.end(end)


@cache
def find_tracer() -> Any:
    """Return the process's tracer; None where spans are not wanted, or the package is not there."""
    if not any(os.environ.get(name) for name in WISHES):
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("weft")


# ---- A second look at waiting jobs, soon after a decision took something away
#
# What a job leaves may be of use to others, or to the job that left it: policies and rules that
# go through jobs one after the other see that only when they are asked again. A policy that takes
# something away each time is asked less and less often; where nobody can use what is left it is not
# asked at all, for one by attained service would only stop another job.


class SecondLook:
    """Says when to decide again though nothing has happened."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self._at = float("inf")

    def next_check(self, now: float, plan: Plan, state: State) -> float | None:
        """The time to look again after a decision that `state` has taken in; None if not at all."""
        looked, self._at = now >= self._at, float("inf")
        waits = len(state.table) - len(state.table.suspended) > state.table.held.astype(bool).sum()
        first = AT_ONCE_S if waits and could_start(state.table, state.free) else FIRST_S
        useful = waits and _takes_away(plan, state) and (first == AT_ONCE_S or _could_grow(state))
        if not useful:
            self._pause_s = first
            return None
        self._pause_s = min(2.0 * self._pause_s, LONGEST_LOOK_S) if looked else first
        self._at = now + self._pause_s
        return self._at


def _could_grow(state: State) -> bool:
    """True if something is idle and a job that holds devices takes more than it has."""
    table = state.table
    held = table.held.nonzero()[0].tolist() if state.free.room() else []
    holders = ((table.jobs[row], table.allocations[row]) for row in held)
    return any(on is not None and on.gpus < job.demand.max for job, on in holders)


def _takes_away(plan: Plan, state: State) -> bool:
    """True if a job left devices: it was stopped, moved or made smaller."""
    leaves, resizes = state.releasing.is_leaving, state.live.under_way
    return any(to is None or leaves(job) or job in resizes for job, to in plan.changes.items())
