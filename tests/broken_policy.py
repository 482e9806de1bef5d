"""A policy with a bug."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.plan.about import About
from weft.core.plan.plan import Plan
from weft.core.plan.view import View


@dataclass(frozen=True, slots=True)
class BrokenPolicy:
    """It raises its error whatever it is asked."""

    error: Exception

    about = About("broken", "of these tests")

    def decide(self, view: View) -> Plan:
        """No plan, ever."""
        raise self.error
