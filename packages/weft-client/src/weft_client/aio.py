"""The client for asyncio: each request runs in a thread, and waits take none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from weft_client.client import Client, What
from weft_client.job import Job, JobStatus, Sweep
from weft_client.steps import Steps

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class _End(Generic[T]):
    """The result of steps that have ended."""

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


def _awaited(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method of the same arguments that runs this one, of what it stands for, in a thread."""

    @wraps(method)
    async def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._of, *args, **kwargs)

    return run


class AsyncJob:
    """A job whose methods are awaited."""

    status = _awaited(Job.status)
    explain = _awaited(Job.explain)
    metrics = _awaited(Job.metrics)
    curves = _awaited(Job.curves)
    events = _awaited(Job.events)
    artifacts = _awaited(Job.artifacts)
    fetch = _awaited(Job.fetch)
    cancel = _awaited(Job.cancel)
    suspend = _awaited(Job.suspend)
    resume = _awaited(Job.resume)

    def __init__(self, job: Job) -> None:
        self.id, self._of = job.id, job

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def wait(self, timeout: float | None = None) -> JobStatus:
        return await _run(self._of.waiting(timeout))

    async def result(self, timeout: float | None = None) -> Any:
        return (await asyncio.to_thread(self._of.values, await self.wait(timeout)))[0]

    async def logs(self, *, follow: bool = False, rank: int = 0) -> AsyncIterator[str]:
        """The lines that a rank has printed."""
        steps = self._of.printing(follow=follow, rank=rank)
        while not isinstance(step := await asyncio.to_thread(_take, steps), _End):
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            for line in step:
                yield line


class AsyncSweep:
    """A sweep whose methods are awaited."""

    statuses = _awaited(Sweep.statuses)
    table = _awaited(Sweep.table)
    cancel = _awaited(Sweep.cancel)

    def __init__(self, sweep: Sweep) -> None:
        self.id, self.jobs, self._of = sweep.id, [AsyncJob(job) for job in sweep.jobs], sweep

    def __repr__(self) -> str:
        return f"AsyncSweep({self.id!r}, {len(self.jobs)} jobs)"

    async def wait(self, timeout: float | None = None) -> list[JobStatus]:
        return await _run(self._of.waiting(timeout))


class AsyncClient:
    """A service for coroutines; the arguments are those of `Client`."""

    cluster = _awaited(Client.cluster)

    def __init__(
        self, url: str = "", token: str | None = None, *, calls: str | os.PathLike[str] = ""
    ) -> None:
        self._of = Client(url, token, calls=calls)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open."""

    async def submit(
        self, what: What | Callable[..., Any], /, *args: Any, **options: Any
    ) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(self._of.submit, what, *args, **options))

    async def map(
        self, function: Callable[..., Any], /, *values: Iterable[Any], **options: Any
    ) -> list[AsyncJob]:
        jobs = await asyncio.to_thread(self._of.map, function, *values, **options)
        return [AsyncJob(job) for job in jobs]

    async def sweep(self, what: What, /, **options: Any) -> AsyncSweep:
        return AsyncSweep(await asyncio.to_thread(self._of.sweep, what, **options))

    async def job(self, job_id: str) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(self._of.job, job_id))

    async def jobs(self, **wanted: str) -> list[JobStatus]:
        return await asyncio.to_thread(lambda: list(self._of.jobs(**wanted)))
