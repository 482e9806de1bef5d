"""The layers around the policy of a service, outermost first: the one list they are made from.

It reads only the view, so a log replays to the same decisions.

No policy sees them. They have an account of their own in the ledger, so that they never keep GPUs
idle: what jobs with GPUs are promised of a host is not touched.

    Scheduler
      | view                                                             plan ^
      v                                                                       |
    eligible_jobs   hides jobs that wait for other jobs, their turn or a person
    backoff         hides a failed job until its pause is over
    cpu_jobs        places jobs without GPUs itself
    skip_failing    leaves out jobs that make the policy fail
    reserve         keeps reserved devices for the jobs they are reserved for
    lend            lends a tenant's idle GPUs, and takes them back when needed
    quota           keeps tenants within their limits and shares
    promise         admits jobs by deadline, and lets them run where a promise would be broken
    easy            reserves GPUs for a job that has waited long and cannot be started by preemption
    priority        lets higher priorities start first and lower ones give way
    no_preempt      never stops a job that may not be stopped
    steady          leaves running jobs alone unless a change pays
      |                                                                       ^
      v                                                                       |
    the policy      decides

The first three are around every policy; the others are wrappers by name, so that the log says
which rules a decision was made under. A layer that is not needed is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from weft.core.model.job import Allocation, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.core.plan.kept_back import find_kept_back
from weft.core.plan.plan import Plan
from weft.core.plan.policy import FastStart, Policy, fast_start_of, may_rest
from weft.core.plan.reasons import Blocker
from weft.core.plan.view import View
from weft.core.spec.part_spec import PartSpec
from weft.core.state.capacity import Capacity
from weft.core.state.cells import Floats, TableColumns
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper

LONGEST_S = 300.0
_LIKE_OTHERS = Launch(())


@frozen
class Backoff(Wrapper):
    """Hide jobs from `inner` until their pause after a failure is over."""

    def decide(self, view: View) -> Plan:
        """The inner policy's decision for all other jobs; wakes when a pause ends."""
        ready = ready_at(view)
        hidden = view.waiting() & (ready > view.now)
        if not hidden.any():
            return self.inner.decide(view)
        plan = self.inner.decide(view.without(hidden))
        soonest = float(ready[hidden].min())
        wake = soonest if plan.wake_at is None else min(plan.wake_at, soonest)
        return replace(plan, wake_at=wake)


def ready_at(view: View) -> Floats:
    """The time at which each row may be tried again; in the past for those that never failed."""
    retries, failed = (
        view.table.column(TableColumns.RETRIES),
        view.table.column(TableColumns.FAILED),
    )
    ready = np.zeros(len(view.table))
    for row in map(int, np.flatnonzero(retries)):
        ready[row] = failed[row] + pause_s(view.job(row), retries[row])
    return ready


def pause_s(job: Job, retries: float) -> float:
    """Seconds that a job waits after its failure number `retries`."""
    launch = job.launch or _LIKE_OTHERS
    doubled = 2.0 ** int(min(retries - 1, 30))
    return float(min(launch.backoff_s * doubled, LONGEST_S))


ONE_CPU = 1.0  # of a job that does not say how many it needs


@frozen
class CpuJobs(Wrapper):
    """Place jobs without GPUs first come, first served; `inner` decides about all others."""

    def decide(self, view: View) -> Plan:
        """The inner policy's plan, and where jobs without GPUs start."""
        if not view.table.conditional:
            return self.inner.decide(view)
        alone: Bools = view.table.column(TableColumns.MAX) == 0.0
        if not alone.any():
            return self.inner.decide(view)
        mark = view.free.mark()
        plan = self.inner.decide(view.without(alone))
        view.free.rollback(mark)
        return replace(plan, changes={**plan.changes, **_place(view, alone)})


def place_on_host(free: Capacity, job: Job) -> Allocation | None:
    """The first machine that has what a job without GPUs asks for; None if none has."""
    for node in free.cluster.nodes:
        if job.demand.kinds and node.kind not in job.demand.kinds:
            continue
        on = Allocation((Slice(node.id, (), job.cpus or ONE_CPU, job.mem_gb or 0.0),))
        if free.fits(on):
            return on
    return None


def _place(view: View, alone: Bools) -> Mapping[JobId, Allocation]:
    """Places of those that wait, by priority and then in order of submission."""
    table, placed = view.table, dict[JobId, Allocation]()
    for row in view.ranked(-table.column(TableColumns.PRIORITY), among=alone & _waiting(view)):
        on = place_on_host(view.free, table.jobs[row])
        if on is not None:
            view.free.take(on)
            placed[table.jobs[row].id] = on
    return placed


def _waiting(view: View) -> Bools:
    return np.array([on is None for on in view.table.allocations], dtype=bool)


@frozen
class EligibleJobs(Wrapper):
    """Hide from `inner` the jobs that wait for something other than devices."""

    @property
    def rests(self) -> bool:
        """No job waits where all hold devices."""
        return may_rest(self.inner)

    @property
    def fast_start(self) -> FastStart | None:
        """Return how the policy starts jobs between decisions, if it does."""
        return fast_start_of(self.inner)

    def decide(self, view: View) -> Plan:
        """The policy's decision about jobs that may start; the others wait unseen."""
        table = view.table
        if not table.conditional and not table.suspended:
            return self.inner.decide(view)
        kept_back = find_kept_back(table)
        if table.suspended and kept_back.all():
            return Plan(memory=view.memory)
        return ask(self.inner, view.without(kept_back) if kept_back.any() else view)


@frozen
class PolicyLayer:
    """One layer: its name, what it does, and the reasons to wait that are its own.

    `wrap` puts it around a policy; None for wrappers that a policy's description names.
    """

    name: str
    does: str
    reasons: tuple[Blocker, ...] = ()
    wrap: Callable[[Policy], Policy] | None = None


LAYERS = (
    PolicyLayer(
        "eligible_jobs",
        "hides jobs that wait for other jobs, their turn or a person",
        (Blocker.SUSPENDED, Blocker.DEPENDENCY, Blocker.PARALLEL),
        EligibleJobs,
    ),
    PolicyLayer(
        "backoff", "hides a failed job until its pause is over", (Blocker.FAILED,), Backoff
    ),
    PolicyLayer("cpu_jobs", "places jobs without GPUs itself", (Blocker.CPU_JOBS,), CpuJobs),
    PolicyLayer("skip_failing", "leaves out jobs that make the policy fail", (Blocker.SPARED,)),
    PolicyLayer(
        "reserve", "keeps reserved devices for the jobs they are reserved for", (Blocker.RESERVED,)
    ),
    PolicyLayer(
        "lend",
        "lends a tenant's idle GPUs, and takes them back when needed",
        (Blocker.GUARANTEE, Blocker.RECLAIMED),
    ),
    PolicyLayer(
        "quota",
        "keeps tenants within their limits and shares",
        (Blocker.QUOTA, Blocker.TOO_LARGE, Blocker.SHARE),
    ),
    PolicyLayer(
        "promise", "admits jobs by deadline, and lets them run where a promise would be broken"
    ),
    PolicyLayer(
        "easy",
        "reserves GPUs for a job that has waited long and cannot be started by preemption",
        (Blocker.KEPT,),
    ),
    PolicyLayer("priority", "lets higher priorities start first and lower ones give way"),
    PolicyLayer("no_preempt", "never stops a job that may not be stopped"),
    PolicyLayer("steady", "leaves running jobs alone unless a change pays", (Blocker.STEADY,)),
)
OF_REASON = {blocker: layer for layer in LAYERS for blocker in layer.reasons}
BY_NAME = tuple(layer.name for layer in LAYERS if layer.wrap is None)


def surround(policy: Policy) -> Policy:
    """The policy inside the layers that every service has."""
    for layer in reversed(LAYERS):
        if layer.wrap is not None:
            policy = layer.wrap(policy)
    return policy


def in_order(rules: Mapping[str, Mapping[str, Any]]) -> list[PartSpec]:
    """Wrappers by name with their parameters, in the order of the layers."""
    return [PartSpec(name, dict(rules[name])) for name in BY_NAME if name in rules]


def decided_by(blocker: Blocker, policy: str, wrappers: Iterable[str] = ()) -> str:
    """The layer that keeps a job waiting, and what it does; the policy where none does."""
    layer = OF_REASON.get(blocker)
    if layer is not None:
        return f"{layer.name}, which {layer.does}"
    if blocker is Blocker.FALLBACK:
        return "fifo, which replaces a policy that failed"
    if blocker in (Blocker.CELLS, Blocker.IDLE_CELLS) and "hived" in wrappers:
        return "hived, which gives tenants virtual clusters"
    if blocker is Blocker.SPOT:
        return "gfs, which leaves spot jobs what guaranteed ones are not expected to need"
    return f"policy {policy}"
