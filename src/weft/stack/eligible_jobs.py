"""Which jobs a policy is asked about: those that only a lack of devices keeps from starting."""

from __future__ import annotations

from weft.core.plan.kept_back import find_kept_back
from weft.core.plan.plan import Plan
from weft.core.plan.policy import Welcome, may_rest, welcome_of
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.stack.ask_policy import ask
from weft.stack.wrapper import Wrapper


@frozen
class EligibleJobs(Wrapper):
    """Hide from `inner` the jobs that wait for something other than devices."""

    @property
    def rests(self) -> bool:
        """No job waits where all hold devices."""
        return may_rest(self.inner)

    @property
    def welcome(self) -> Welcome | None:
        """As the policy does it."""
        return welcome_of(self.inner)

    def decide(self, view: View) -> Plan:
        """What the policy decides about jobs that may start; the others wait unseen."""
        table = view.table
        if not table.conditional and not table.suspended:
            return self.inner.decide(view)
        kept_back = find_kept_back(table)
        if table.suspended and kept_back.all():
            return Plan(memory=view.memory)
        return ask(self.inner, view.without(kept_back) if kept_back.any() else view)
