"""Jobs that people write as objects of a cluster: what an engine reads and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from weft.frozen import frozen


@frozen
class JobObject:
    """A job as someone applied it: `spec` is a job file, and `uid` names the object forever.

    `generation` counts changes of its spec; `claimed` says that it is not gone before we release
    it. Jobs without a `workdir` have this one. `status` is what was last written.
    """

    uid: str
    namespace: str
    name: str
    tenant: str
    spec: Mapping[str, Any]
    workdir: str
    generation: int = 1
    claimed: bool = False
    deleted: bool = False
    status: Mapping[str, Any] | None = None


class JobObjects(Protocol):
    """Every call may raise WeftError, and is tried again then."""

    def all(self) -> Sequence[JobObject]:
        """The objects that there are, as far as can be known now."""
        ...

    async def claim(self, job: JobObject) -> None:
        """Let it stay until `release`, also when it is deleted."""
        ...

    async def release(self, job: JobObject) -> None: ...

    async def write(self, job: JobObject, status: Mapping[str, Any]) -> None: ...

    async def post_event(self, job: JobObject, reason: str, text: str, *, warning: bool) -> None:
        """Show what happened on an object, once for each text."""
        ...
