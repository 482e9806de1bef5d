"""The one thing a scheduler author writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from weft.core.model.job import Job
from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity

Welcome = Callable[[Job, Capacity, float], Plan | None]


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
        """What should change now. A job the plan does not name keeps what it holds."""
        ...


@runtime_checkable
class Resting(Policy, Protocol):
    """A policy that says whether it rests while every job holds devices.

    Then it changes nothing, asks for nothing and keeps its memory; simulations do not ask it.
    """

    @property
    def rests(self) -> bool:
        """Whether it does so with these parameters."""
        ...


@runtime_checkable
class Welcoming(Resting, Protocol):
    """A policy that rests, and places a lone newcomer that fits beside all running jobs.

    Simulations take its word instead of a whole decision, which would have to be the same.
    """

    @property
    def welcome(self) -> Welcome | None:
        """The plan for it, without memory; None where the policy has to be asked."""
        ...


def may_rest(policy: Policy) -> bool:
    """Whether a policy need not be asked while every job holds devices."""
    return isinstance(policy, Resting) and policy.rests and policy.about.every is None


def welcome_of(policy: Policy) -> Welcome | None:
    """How a policy starts a lone newcomer; None where it has to be asked."""
    return policy.welcome if may_rest(policy) and isinstance(policy, Welcoming) else None
