"""What all layers have in common: a policy inside, whose declaration is theirs, and a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.model.job import JobId
from weft.core.plan.about import About
from weft.core.plan.policy import Policy
from weft.frozen import frozen


@frozen
class Wrapper:
    """A policy around `inner`, which it asks with a changed view or whose plan it changes."""

    inner: Policy = field(metadata={"settable": False})

    @property
    def about(self) -> About:
        """The inner policy's."""
        return self.inner.about


@frozen
class WrapperMemory:
    """The inner policy's memory, and the reasons that jobs were given last."""

    inner: object = None
    told: Mapping[JobId, str] = field(default_factory=dict)
