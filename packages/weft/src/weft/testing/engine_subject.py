"""An engine under test: how to make it, what jobs it can run, and how to break it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import field
from functools import wraps
from pathlib import Path
from typing import Any

from weft.core.events.event import (
    Event,
    Failed,
    Finished,
    NodeDown,
    NodeUp,
    Started,
    StartFailed,
    Stopped,
)
from weft.core.model.job import Allocation, Demand, Job, JobId, NodeId, Slice
from weft.core.model.launch import Launch
from weft.core.protocols import Engine
from weft.frozen import frozen
from weft.run_terms import Processes

ENDS = (Stopped, Finished, Failed, StartFailed)
GHOST = JobId("ghost")
STUBBORN = "trap '' TERM; echo begun; while :; do sleep 0.05; done"

MakeJob = Callable[[str, int], Job]
Script = Callable[[str, int, str], Job]
OnNode = Callable[[NodeId], None]


@frozen
class Image:
    """One with `sh` and nothing in /usr; jobs in it need `env`.

    `volume` is a folder that all nodes have, with a `line` in its `file`.
    """

    name: str
    volume: str
    line: str
    env: Mapping[str, str] = field(default_factory=dict)


@frozen
class EngineTenant:
    """One whose jobs run as a user of its own; `account` is what they are charged to, if any."""

    name: str
    uid: int
    account: str = ""


@frozen
class Subject:
    """An engine under test; None where it has no such jobs, or cannot be broken so.

    `make` gives an engine on the same state each time: calling it again is what a restarted
    service does. `job(name, gpus)` ends by itself soon, `endless` only when asked to,
    `stubborn` not even then, `failing` dies. `script(name, gpus, text)` runs a text of `sh` for
    each GPU. `printed` is what `job` writes. `where` is what the shell of a rank calls its node by,
    for instance `$SLURMD_NODENAME`. `exact` says that ranks have exactly the devices asked for.
    `kill_node` takes a node away, with or without the processes there, and `restore_node` brings it
    back; the same for the controller. `image` is one that jobs can run in. `tenants` have users of
    their own, and `charged` is whom the controller says that a job, by its name, belongs to: a
    user's number and an account. `patience_s` bounds every wait.
    """

    make: Callable[[], Engine]
    job: MakeJob
    endless: MakeJob
    failing: MakeJob
    stubborn: MakeJob | None = None
    script: Script | None = None
    printed: str = ""
    where: str = ""
    exact: bool = False
    kill_node: OnNode | None = None
    restore_node: OnNode | None = None
    kill_controller: Callable[[], None] | None = None
    restore_controller: Callable[[], None] | None = None
    image: Image | None = None
    tenants: tuple[EngineTenant, ...] = ()
    charged: Callable[[str], tuple[int, str]] | None = None
    patience_s: float = 400.0  # on a busy machine PyTorch alone takes a minute


def shell_job(name: str, gpus: int, text: str) -> Job:
    """A job whose every rank runs a text of `sh`."""
    launch = Launch(("sh", "-c", text), workdir="/", processes=Processes.PER_GPU)
    return Job(JobId(name), demand=Demand(gpus), launch=launch)


def shell_subject(make: Callable[[], Engine], **more: Any) -> Subject:
    """An engine whose jobs are processes, tried with scripts; `more` are fields of `Subject`."""
    return Subject(
        make=make,
        job=lambda name, gpus: shell_job(name, gpus, "echo hello from rank $RANK of $WORLD_SIZE"),
        endless=lambda name, gpus: shell_job(name, gpus, "exec sleep 1000"),
        failing=lambda name, gpus: shell_job(name, gpus, "echo no such luck >&2; exit 3"),
        stubborn=lambda name, gpus: shell_job(name, gpus, STUBBORN),
        script=shell_job,
        printed="hello from rank",
        **more,
    )


class EngineSession:
    """One life of an engine: its news, waited for with a limit."""

    def __init__(self, engine: Engine, patience_s: float) -> None:
        self.engine = engine
        self._news = engine.events()
        self._patience_s = patience_s
        self._coming: asyncio.Future[Event] | None = (
            None  # outlives a caller that stops waiting for it
        )

    def leave(self) -> None:
        """Wait for nothing more."""
        if self._coming is not None:
            self._coming.cancel()

    async def on(self, gpus: int) -> Allocation:
        """The first devices of the first node."""
        node = (await self.engine.nodes())[0]
        return Allocation((Slice(node.id, tuple(range(gpus))),))

    async def over(self, *counts: int) -> Allocation:
        """Allocate that many devices of the last nodes of one kind, in their order."""
        until = time.monotonic() + self._patience_s  # one may be on its way back
        while True:
            nodes = await self.engine.nodes()
            same = [node for node in nodes if node.kind == nodes[-1].kind]
            if len(same) >= len(counts):
                break
            assert time.monotonic() < until, f"{len(counts)} nodes of one kind are needed"
            await asyncio.sleep(0.2)
        chosen = same[-len(counts) :]
        return Allocation(
            tuple(
                Slice(node.id, tuple(range(count)))
                for node, count in zip(chosen, counts, strict=True)
            )
        )

    async def start(self, job: Job, attempt: int = 1) -> None:
        """Start on as many devices as it asks for."""
        await self.engine.start(job, await self.on(job.demand.gpus), attempt)

    async def begin(self, job: Job) -> None:
        """Start it, and wait for the report that it runs."""
        await self.start(job)
        assert await self.next() == Started(job.id, 1)

    async def next(self) -> Event:
        """The next event of an attempt, reports left out."""
        event: Event = await self.told((Started, *ENDS))
        return event

    async def told(self, kinds: type[Event] | tuple[type[Event], ...]) -> Any:
        """Wait for the next event of some kinds."""
        async with asyncio.timeout(self._patience_s):
            while not isinstance(event := await self._any(), kinds):
                pass
        return event

    async def _any(self) -> Event:
        if self._coming is None:
            self._coming = asyncio.ensure_future(anext(self._news))
        event = await asyncio.shield(self._coming)
        self._coming = None
        return event

    async def until_down(self, node: NodeId) -> list[Event]:
        """Events of attempts until one of this node."""
        before: list[Event] = []
        while (event := await self.told((NodeDown, Started, *ENDS))) != NodeDown(node):
            before.append(event)
        return before

    async def until_up(self, node: NodeId) -> None:
        """Wait until this node is reported to be back."""
        while (await self.told(NodeUp)).node.id != node:
            pass

    async def silent(self, seconds: float = 0.5) -> None:
        """No events but reports come for a while."""
        try:
            async with asyncio.timeout(seconds):
                event = await self.next()
        except TimeoutError:
            return
        raise AssertionError(f"nothing more was expected, but {event} was reported")

    async def becomes(self, truth: Callable[[], object], what: str) -> None:
        """Wait until something is true."""
        try:
            async with asyncio.timeout(self._patience_s):
                while not truth():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what} did not become true") from None


@asynccontextmanager
async def session(
    subject: Subject, expecting: frozenset[tuple[JobId, int]] = frozenset()
) -> AsyncIterator[EngineSession]:
    """An engine that was opened, and adopted what is expected to run."""
    engine = subject.make()
    await engine.nodes()
    known = await engine.adopt(expecting)
    assert known == set(expecting), f"expected it to know {set(expecting)}, it knows {known}"
    it = EngineSession(engine, subject.patience_s)
    try:
        yield it
    finally:
        it.leave()
        await engine.close()


async def run_script(
    it: EngineSession, job: Job, on: Allocation, attempt: int = 1
) -> tuple[Event, dict[int, str]]:
    """Run a job to its end: how it ended, and what each rank printed."""
    await it.engine.start(job, on, attempt)
    while not isinstance(event := await it.next(), ENDS):
        pass
    return event, read_all(it.engine, job.id, attempt)


def read_all(engine: Engine, job: JobId, attempt: int = 1) -> dict[int, str]:
    """Return each rank's output."""
    return {rank: text_of(path) for rank, path in engine.logs(job, attempt).items()}


def text_of(path: Path) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


Check = Callable[[Subject], Coroutine[Any, Any, None]]


def by_script(check: Callable[[Subject, Script], Coroutine[Any, Any, None]]) -> Check:
    """A check of an engine that runs scripts, skipped where a subject has none."""

    @wraps(check)
    async def checked(subject: Subject) -> None:
        if subject.script is not None:
            await check(subject, subject.script)

    return checked
