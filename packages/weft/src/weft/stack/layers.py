"""The layers around the policy of a service, outermost first: the one list they are made from.

    Scheduler
      | view                                                             plan ^
      v                                                                       |
    eligible_jobs   hides jobs that wait for other jobs, their turn or a person
    backoff         hides a failed job until its pause is over
    cpu_jobs        places jobs without GPUs itself
    spare           leaves out jobs that make the policy fail
    reserve         keeps reserved devices for the jobs they are reserved for
    lend            lends a tenant's idle GPUs, and takes them back when needed
    quota           keeps tenants within their limits and shares
    promise         admits jobs by deadline, and lets them run where a promise would be broken
    easy            reserves GPUs for a job that has waited long and cannot be started by preemption
    priority        lets higher priorities start first and lower ones give way
    firm            never stops a job that may not be stopped
    steady          leaves running jobs alone unless a change pays
      |                                                                       ^
      v                                                                       |
    the policy      decides

The first three are around every policy; the others are wrappers by name, so that the log says
which rules a decision was made under. A layer that is not needed is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.core.plan.policy import Policy
from weft.core.plan.reasons import Blocker
from weft.core.spec.part_spec import PartSpec
from weft.frozen import frozen
from weft.stack.backoff import Backoff
from weft.stack.cpu_jobs import CpuJobs
from weft.stack.eligible_jobs import EligibleJobs


@frozen
class Layer:
    """One layer: its name, what it does, and the reasons to wait that are its own.

    `wrap` puts it around a policy; None for wrappers that a policy's description names.
    """

    name: str
    does: str
    reasons: tuple[Blocker, ...] = ()
    wrap: Callable[[Policy], Policy] | None = None


LAYERS = (
    Layer(
        "eligible_jobs",
        "hides jobs that wait for other jobs, their turn or a person",
        (Blocker.SUSPENDED, Blocker.DEPENDENCY, Blocker.PARALLEL),
        EligibleJobs,
    ),
    Layer("backoff", "hides a failed job until its pause is over", (Blocker.FAILED,), Backoff),
    Layer("cpu_jobs", "places jobs without GPUs itself", (Blocker.CPU_JOBS,), CpuJobs),
    Layer("spare", "leaves out jobs that make the policy fail", (Blocker.SPARED,)),
    Layer(
        "reserve", "keeps reserved devices for the jobs they are reserved for", (Blocker.RESERVED,)
    ),
    Layer(
        "lend",
        "lends a tenant's idle GPUs, and takes them back when needed",
        (Blocker.GUARANTEE, Blocker.RECLAIMED),
    ),
    Layer(
        "quota",
        "keeps tenants within their limits and shares",
        (Blocker.QUOTA, Blocker.TOO_LARGE, Blocker.SHARE),
    ),
    Layer(
        "promise",
        "admits jobs by deadline, and lets them run where a promise would be broken",
    ),
    Layer(
        "easy",
        "reserves GPUs for a job that has waited long and cannot be started by preemption",
    ),
    Layer("priority", "lets higher priorities start first and lower ones give way"),
    Layer("firm", "never stops a job that may not be stopped"),
    Layer("steady", "leaves running jobs alone unless a change pays", (Blocker.STEADY,)),
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
    """Which layer keeps a job waiting, and what that layer does; the policy where none does."""
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
