"""What all layers have in common: a policy inside, whose declaration is theirs."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.core.plan.about import About
from weft.core.plan.policy import Policy


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A policy around `inner`, which it asks with a changed view or whose plan it changes."""

    inner: Policy = field(metadata={"settable": False})

    @property
    def about(self) -> About:
        """The inner policy's."""
        return self.inner.about
