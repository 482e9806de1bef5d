"""Asks the policy: in the service itself, or in a process that may be ended."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from typing import Any, Protocol

from weft.core.errors import EngineError, PlanError
from weft.core.events.event import Event
from weft.core.plan.plan import Plan
from weft.core.plan.rules import check_plan
from weft.core.scheduler import Scheduler
from weft.core.spec.part_spec import PartSpec
from weft.runtime.deciding.frames import (
    LENGTH,
    Begin,
    Decide,
    Failure,
    PlanReply,
    TimedEvent,
    frame,
    pack,
    unpack,
)
from weft.runtime.deciding.live_policy import propose
from weft.wire.ending import end_process
from weft.wire.processes import cpu_seconds

LIMIT_S = 20.0
LEAST_PART = 0.1  # of a processor that a policy gets on a busy machine
START_S = 120.0  # until a new worker has read the state: not the policy's doing
MEMORY_GB = 4.0
BACKLOG = 2_000  # undecided events, beside one per job, after which the copy starts over


class PolicyFailed(EngineError):  # noqa: N818 - as the others
    """A policy gave no plan; `trace` is where it went wrong, if it lived to tell."""

    def __init__(self, what: str, *, trace: str = "") -> None:
        super().__init__(what)
        self.trace = trace


class Decider(Protocol):
    """Asks a policy for its plan."""

    @property
    def spent_s(self) -> float:
        """Seconds of a processor that the last plan took to make."""
        ...

    async def start(self) -> None:
        """Make ready for decisions."""
        ...

    async def prepare(self, scheduler: Scheduler, policy: PartSpec) -> None:
        """Know all that is needed for the next decision, so that it does not wait for that."""
        ...

    def add_event(self, at: float, event: Event) -> None:
        """Something happened; the scheduler has taken it in."""
        ...

    async def plan(self, scheduler: Scheduler, policy: PartSpec, now: float) -> Plan:
        """A checked plan; raises whatever the policy does, PolicyFailed if it gives none."""
        ...

    def reset(self) -> None:
        """The scheduler is another one from here on."""
        ...

    async def close(self) -> None:
        """Let go of whatever is held."""
        ...


class InProcess:
    """Asks the policy here and now: for tests, and where it is trusted."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    async def start(self) -> None:
        """Nothing to do."""

    async def prepare(self, scheduler: Scheduler, policy: PartSpec) -> None:
        """Nothing to do."""

    def add_event(self, at: float, event: Event) -> None:
        """Nothing to do: the scheduler knows."""

    async def plan(self, scheduler: Scheduler, policy: PartSpec, now: float) -> Plan:  # noqa: ARG002
        began = time.perf_counter()
        try:
            return propose(scheduler, now)
        finally:
            self.spent_s = time.perf_counter() - began

    def reset(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing is held."""


class InWorker:
    """Asks a process that keeps a copy of the scheduler's state, by the same events.

    A decision may take `limit_s` seconds, and the process `memory_gb` of address space.
    """

    def __init__(self, *, limit_s: float = LIMIT_S, memory_gb: float = MEMORY_GB) -> None:
        self._limit_s, self._memory_gb = limit_s, memory_gb
        self._events: list[TimedEvent] = []
        self._worker: asyncio.subprocess.Process | None = None
        self._begun = False
        self._backlog = BACKLOG
        self.spent_s = 0.0

    @property
    def pid(self) -> int | None:
        """The worker's process; None where there is none."""
        return None if self._worker is None else self._worker.pid

    def add_event(self, at: float, event: Event) -> None:
        """Keep it for the next decision."""
        if self._begun:
            self._events.append((at, event))
            if len(self._events) > self._backlog:
                self.reset()

    def reset(self) -> None:
        """The next decision brings the whole state along."""
        self._events.clear()
        self._begun = False

    async def prepare(self, scheduler: Scheduler, policy: PartSpec) -> None:
        """Send the worker the whole state; if that fails the next decision tells why."""
        try:
            async with asyncio.timeout(START_S):
                await self._begin(scheduler, policy)
        except (EngineError, OSError, EOFError, TimeoutError):
            await self._end()

    async def plan(self, scheduler: Scheduler, policy: PartSpec, now: float) -> Plan:
        """The plan of the worker's policy; a worker that fails is replaced for the next one."""
        if not len(scheduler.state.table):
            return propose(scheduler, now)
        try:
            async with asyncio.timeout(START_S):
                await self._begin(scheduler, policy)
            answer = await self._ask_within(now)
        except TimeoutError:
            await self._end()
            raise PolicyFailed(f"it took longer than {self._limit_s:g} s") from None
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            code = await self._end()
            raise PolicyFailed(f"its process ended, {_describe_end(code)}") from error
        except BaseException:
            await self._end()
            raise
        if isinstance(answer, Failure):
            self.reset()
            raise PolicyFailed(answer.what, trace=answer.trace)
        self.spent_s = answer.cpu_s
        return self._checked(scheduler, now, answer)

    def _checked(self, scheduler: Scheduler, now: float, wish: PlanReply) -> Plan:
        plan = replace(wish.plan, memory=unpack(wish.memory))
        try:
            check_plan(scheduler.view(now), plan, scheduler.policy.about)
        except PlanError:
            self.reset()
            raise
        return plan

    async def close(self) -> None:
        await self._end()

    async def start(self) -> None:
        """Have a worker that is ready; ahead of the first decision that saves it waiting."""
        if self._worker is not None and self._worker.returncode is None:
            return
        self.reset()
        self._worker = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "weft.runtime.deciding.decide_worker",
            f"{self._memory_gb:g}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the service's to hear
        )
        try:
            async with asyncio.timeout(START_S):
                await self._receive()
        except (TimeoutError, asyncio.IncompleteReadError) as error:
            code = await self._end()
            raise EngineError(
                f"the process that decides did not start, {_describe_end(code)}"
            ) from error

    async def _begin(self, scheduler: Scheduler, policy: PartSpec) -> None:
        """Have a worker that knows everything up to now."""
        await self.start()
        if not self._begun:
            memory = pack(scheduler.memory)
            self._send(Begin(_state(scheduler), policy, memory))
            self._begun = True
            await self._receive()
        self._backlog = BACKLOG + len(scheduler.state.table)

    async def _ask_within(self, now: float) -> PlanReply | Failure:
        """Its answer; TimeoutError for a policy that hangs, or takes more than its seconds."""
        asking = asyncio.ensure_future(self._ask(now))
        used, began = self._used_s(), time.monotonic()
        try:
            while True:
                done, _ = await asyncio.wait({asking}, timeout=self._limit_s)
                if done:
                    return asking.result()
                if is_overdue(self._used_s() - used, time.monotonic() - began, self._limit_s):
                    raise TimeoutError
        finally:
            asking.cancel()

    def _used_s(self) -> float:
        return 0.0 if self.pid is None else cpu_seconds(self.pid)

    async def _ask(self, now: float) -> PlanReply | Failure:
        events, self._events = self._events, []
        self._send(Decide(events, now))
        answer: PlanReply | Failure = await self._receive()
        return answer

    def _send(self, message: Begin | Decide) -> None:
        assert self._worker is not None
        assert self._worker.stdin is not None
        self._worker.stdin.write(frame(message))

    async def _receive(self) -> Any:
        assert self._worker is not None
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        await self._worker.stdin.drain()
        head = await self._worker.stdout.readexactly(LENGTH.size)
        return unpack(await self._worker.stdout.readexactly(LENGTH.unpack(head)[0]))

    async def _end(self) -> int | None:
        """Kill the worker; its exit code."""
        self.reset()
        worker, self._worker = self._worker, None
        if worker is None:
            return None
        return await end_process(worker)


def _state(scheduler: Scheduler) -> bytes:
    return pack(scheduler.pickle_state())


def is_overdue(used_s: float, took_s: float, limit_s: float) -> bool:
    """True if a decision took too long: by processor time, for on a busy machine all take long.

    One that hardly computes hangs.
    """
    return used_s >= limit_s or used_s < LEAST_PART * took_s


def _describe_end(code: int | None) -> str:
    if code is None:
        return "without an exit code"
    return f"killed by signal {-code}" if code < 0 else f"with exit code {code}"
