"""The same client for asyncio: each request runs in a thread, so that the loop goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from weft_client.client import Client, What
from weft_client.job import Explanation, Job, JobStatus, Sweep


class AsyncJob:
    """A job whose methods are awaited."""

    def __init__(self, job: Job) -> None:
        self.id, self._job = job.id, job

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def status(self) -> JobStatus:
        return await asyncio.to_thread(self._job.status)

    async def wait(self, timeout: float | None = None) -> JobStatus:
        return await asyncio.to_thread(self._job.wait, timeout)

    async def result(self, timeout: float | None = None) -> Any:
        return await asyncio.to_thread(self._job.result, timeout)

    async def explain(self) -> Explanation:
        return await asyncio.to_thread(self._job.explain)

    async def metrics(self) -> dict[str, float]:
        return await asyncio.to_thread(self._job.metrics)

    async def cancel(self) -> None:
        await asyncio.to_thread(self._job.cancel)

    async def logs(self, *, follow: bool = False, rank: int = 0) -> AsyncIterator[str]:
        """The lines that a rank has printed."""
        lines = self._job.logs(follow=follow, rank=rank)
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line


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

    async def sweep(self, what: What, /, **options: Any) -> Sweep:
        return await asyncio.to_thread(self._client.sweep, what, **options)

    async def job(self, job_id: str) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(self._client.job, job_id))
