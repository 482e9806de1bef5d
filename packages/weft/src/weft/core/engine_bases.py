"""Refusals for engines that cannot do all of `weft.core.protocols.Engine`."""

from __future__ import annotations

from collections.abc import Mapping

from weft.core.errors import EngineError
from weft.core.model.job import Allocation, Job, JobId, MemoryPlace
from weft.core.stops import Rung


class NoLiveResize:
    """A base for engines whose jobs are stopped and started again to change their devices."""

    __slots__ = ()

    async def resize(self, job: Job, to: Allocation, attempt: int, epoch: int) -> None:  # noqa: ARG002
        """Never called, because no attempt is reported as Resizable."""
        raise EngineError(f"job {job.id!r} cannot change its devices as it runs")


class NoMemoryWaits:
    """A base for engines where no allocation of device memory waits."""

    __slots__ = ()

    async def order_memory(self, order: Mapping[JobId, MemoryPlace]) -> None:
        """Nothing waits."""


class NoSleep:
    """A base for engines whose attempts run until they are stopped for good."""

    __slots__ = ()

    @property
    def stops(self) -> frozenset[Rung]:
        return frozenset()

    async def freeze(self, job: JobId, attempt: int, *, by: str) -> None:  # noqa: ARG002
        raise EngineError(f"attempt {attempt} of job {job!r} cannot be frozen by this engine")

    async def suspend(self, job: JobId, attempt: int, *, by: str) -> float:  # noqa: ARG002
        raise EngineError(f"attempt {attempt} of job {job!r} cannot be suspended by this engine")

    async def thaw(self, job: JobId, attempt: int, *, by: str) -> None:
        """Do nothing: no job of this engine sleeps."""
