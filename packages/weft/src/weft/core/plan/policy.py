"""The one thing a scheduler author writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from weft.core.model.job import Job
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity

FastStart = Callable[[Job, Capacity, float], Plan | None]


class Policy(Protocol):
    """Decides what every job should hold.

    A policy is a frozen dataclass: its parameters are its fields, and building one does no
    work. `decide` reads the view and returns a plan. It does no I/O, reads no clock, draws
    no global random numbers and keeps nothing between calls: what it wants to remember goes
    into `Plan.memory` and comes back in the next `View.memory`. Same view, same plan.
    """

    @property
    def about(self) -> About:
        """Name, origin, what it reads and what it sets."""
        ...

    def decide(self, view: View) -> Plan:
        """The changes to make now. A job the plan does not name keeps what it holds."""
        ...


@runtime_checkable
class Resting(Policy, Protocol):
    """A policy that says whether it rests while every job holds devices.

    Then it changes nothing, asks for nothing and keeps its memory; simulations do not ask it.
    """

    @property
    def rests(self) -> bool: ...


@runtime_checkable
class FastStarting(Resting, Protocol):
    """A policy that rests, and places a lone newcomer that fits beside all running jobs.

    Simulations take its word instead of a whole decision, which would have to be the same.
    """

    @property
    def fast_start(self) -> FastStart | None:
        """The plan for it, without memory; None where the policy has to be asked."""
        ...


def may_rest(policy: Policy) -> bool:
    """True if a policy need not be asked while every job holds devices."""
    return isinstance(policy, Resting) and policy.rests and policy.about.every is None


def fast_start_of(policy: Policy) -> FastStart | None:
    """The function by which a policy starts a lone newcomer; None where it has to be asked."""
    return policy.fast_start if may_rest(policy) and isinstance(policy, FastStarting) else None


M = TypeVar("M")


def recall(view: View, kind: type[M]) -> M:
    """A policy's memory; an empty one before its first decision."""
    return view.memory if isinstance(view.memory, kind) else kind()
