"""The same client for asyncio: each request runs in a thread, and waits take none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from weft_client.client import Client, What
from weft_client.job import Explanation, Job, JobStatus, Sweep
from weft_client.steps import Steps

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _End(Generic[T]):
    """What comes of steps in the end."""

    value: T


def _take(steps: Generator[S, None, T]) -> S | _End[T]:
    try:
        return next(steps)
    except StopIteration as end:
        return _End(end.value)


async def _run(steps: Steps[T]) -> T:
    """The end of these steps; the loop sleeps between them, so that many can wait."""
    while not isinstance(step := await asyncio.to_thread(_take, steps), _End):
        await asyncio.sleep(step)
    return step.value


class AsyncJob:
    """A job whose methods are awaited."""

    def __init__(self, job: Job) -> None:
        self.id, self._job = job.id, job

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def status(self) -> JobStatus:
        return await asyncio.to_thread(self._job.status)

    async def wait(self, timeout: float | None = None) -> JobStatus:
        return await _run(self._job.waiting(timeout))

    async def result(self, timeout: float | None = None) -> Any:
        return (await asyncio.to_thread(self._job.values, await self.wait(timeout)))[0]

    async def explain(self) -> Explanation:
        return await asyncio.to_thread(self._job.explain)

    async def metrics(self) -> dict[str, float]:
        return await asyncio.to_thread(self._job.metrics)

    async def curves(self) -> dict[str, list[tuple[float, float | None]]]:
        return await asyncio.to_thread(self._job.curves)

    async def events(self, limit: int = 500) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._job.events, limit)

    async def artifacts(self) -> dict[str, int]:
        return await asyncio.to_thread(self._job.artifacts)

    async def fetch(self, path: str = "", to: str | os.PathLike[str] = ".") -> list[Path]:
        return await asyncio.to_thread(self._job.fetch, path, to)

    async def cancel(self) -> None:
        await asyncio.to_thread(self._job.cancel)

    async def suspend(self, *, restart: bool = False) -> None:
        await asyncio.to_thread(self._job.suspend, restart=restart)

    async def resume(self) -> None:
        await asyncio.to_thread(self._job.resume)

    async def logs(self, *, follow: bool = False, rank: int = 0) -> AsyncIterator[str]:
        """The lines that a rank has printed."""
        steps = self._job.printing(follow=follow, rank=rank)
        while not isinstance(step := await asyncio.to_thread(_take, steps), _End):
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            for line in step:
                yield line


class AsyncSweep:
    """A sweep whose methods are awaited."""

    def __init__(self, sweep: Sweep) -> None:
        self.id, self.jobs, self._sweep = sweep.id, [AsyncJob(job) for job in sweep.jobs], sweep

    def __repr__(self) -> str:
        return f"AsyncSweep({self.id!r}, {len(self.jobs)} jobs)"

    async def statuses(self) -> list[JobStatus]:
        return await asyncio.to_thread(self._sweep.statuses)

    async def wait(self, timeout: float | None = None) -> list[JobStatus]:
        return await _run(self._sweep.waiting(timeout))

    async def table(self) -> Any:
        return await asyncio.to_thread(self._sweep.table)

    async def cancel(self) -> None:
        await asyncio.to_thread(self._sweep.cancel)


class AsyncClient:
    """A service for coroutines; the arguments are those of `Client`."""

    def __init__(
        self, url: str = "", token: str | None = None, *, calls: str | os.PathLike[str] = ""
    ) -> None:
        self._client = Client(url, token, calls=calls)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open."""

    async def submit(
        self, what: What | Callable[..., Any], /, *args: Any, **options: Any
    ) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(self._client.submit, what, *args, **options))

    async def map(
        self, function: Callable[..., Any], /, *values: Iterable[Any], **options: Any
    ) -> list[AsyncJob]:
        jobs = await asyncio.to_thread(self._client.map, function, *values, **options)
        return [AsyncJob(job) for job in jobs]

    async def sweep(self, what: What, /, **options: Any) -> AsyncSweep:
        return AsyncSweep(await asyncio.to_thread(self._client.sweep, what, **options))

    async def job(self, job_id: str) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(self._client.job, job_id))

    async def jobs(self, **wanted: str) -> list[JobStatus]:
        return await asyncio.to_thread(lambda: list(self._client.jobs(**wanted)))

    async def cluster(self) -> dict[str, Any]:
        return await asyncio.to_thread(self._client.cluster)
