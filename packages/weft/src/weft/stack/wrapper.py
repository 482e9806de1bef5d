"""Base of all layers: a policy inside, whose declaration is theirs, and a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from weft.core.model.job import JobId
from weft.core.plan.about import About, may_idle
from weft.core.plan.policy import Policy
from weft.frozen import frozen


@frozen
class Wrapper:
    """A policy around `inner`, which it asks with a changed view or whose plan it changes.

    `idles` is why a GPU may be idle for its sake although a job could use it.
    """

    inner: Policy = field(metadata={"settable": False})

    idles = ""

    @property
    def about(self) -> About:
        return may_idle(self.inner.about, self.idles) if self.idles else self.inner.about


@frozen
class WrapperMemory:
    """The inner policy's memory, and the reasons that jobs were given last."""

    inner: object = None
    told: Mapping[JobId, str] = field(default_factory=dict)
