"""Asks agents to freeze, suspend and wake the processes of attempts, and awaits the answer.

An attempt may have several parts, each with an agent: all of them sleep, or none.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.errors import EngineError, NotRunningError
from weft.core.model.job import JobId
from weft.core.stops import PROBE, Rung
from weft.engines.attempts.rounds import AttemptLoop, Key
from weft.engines.attempts.watch import wake_agent
from weft.engines.machine.devices import LocalMachine
from weft.frozen import frozen
from weft.wire.attempt import CHANGE, RESIZE, SPEC, AttemptSpec, read_json
from weft.wire.sleep import (
    AWAKE,
    COLLECTIVE_S,
    DEPTH,
    FROZEN,
    SUSPENDED,
    SleepRequest,
    SleepState,
    read_request,
    read_state,
    write_request,
)

FREEZE_S = 15.0  # for an agent to answer; it answers within milliseconds
SUSPEND_S = 600.0  # for a device to be copied to host memory
SHORTEST_S, LONGEST_S = 0.001, 0.05
SHORTEST_STALL_S = 5.0
# What a job may say about its collectives' timeout, and in which unit.
OWN_TIMEOUT = "WEFT_COLLECTIVE_TIMEOUT_S"
TIMEOUTS = {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": 1.0, "DEEPSPEED_TIMEOUT": 60.0}


class SleepsByAgent(ABC):
    """Sleeping for an engine whose attempts have agents; see `weft.core.protocols.Engine`."""

    _wake_s = SUSPEND_S  # for sleeping jobs to run again
    wake_alone_s: float  # until sleeping jobs are woken without a service
    _loop: AttemptLoop[Any]

    @property
    @abstractmethod
    def stops(self) -> frozenset[Rung]:
        """Ways to stop that are possible, of freezing and suspending."""

    async def freeze(self, job: JobId, attempt: int, *, by: str) -> None:
        """The whole tree of processes; acknowledged within milliseconds."""
        parts = self._running((job, attempt), Rung.FREEZE, FROZEN)
        await _put_all_to_sleep(parts, by, FROZEN, FREEZE_S)

    async def suspend(self, job: JobId, attempt: int, *, by: str) -> float:
        """With the device's driver; takes as long as the copy does."""
        parts = self._running((job, attempt), Rung.SUSPEND, SUSPENDED)
        answers = await _put_all_to_sleep(parts, by, SUSPENDED, SUSPEND_S)
        return sum(answer.host_gb for answer in answers)

    async def thaw(self, job: JobId, attempt: int, *, by: str) -> None:
        if wrong := await _wake_all(self._parts((job, attempt)), by, self._wake_s):
            raise wrong

    @abstractmethod
    def _part_folders(self, key: Key) -> Sequence[Path]:
        """Folders of the agents of an attempt, the one with rank 0 first."""

    async def _send_request(self, folder: Path) -> None:
        """Have an agent read what was written for it."""
        await asyncio.to_thread(wake_agent, folder)

    def _parts(self, key: Key) -> list[SleepingAttempt]:
        """The parts of an attempt that may sleep; none if it does not run."""
        there = partial(self._loop.watched.__contains__, key)
        send, alone_s = self._send_request, self.wake_alone_s
        try:
            return [
                SleepingAttempt(*key, folder, there, alone_s, find_longest_stall_s(folder), send)
                for folder in (self._part_folders(key) if there() else ())
            ]
        except (OSError, WireError) as error:
            raise EngineError(f"attempt {key[1]} of job {key[0]!r}: {error}") from error

    def _running(self, key: Key, rung: Rung, state: str) -> list[SleepingAttempt]:
        job, attempt = key
        if rung not in self.stops:
            raise EngineError(f"attempt {attempt} of job {job!r} cannot be {state} by this engine")
        if parts := self._parts(key):
            return parts
        raise NotRunningError(f"attempt {attempt} of job {job!r} does not run")


def count_ranks(folder: Path, spec: AttemptSpec) -> int:
    """The number of ranks that an attempt may have now, with those that came later."""
    alone, one_of_several = read_json(folder / RESIZE) or {}, read_json(folder / CHANGE) or {}
    try:
        later = len(one_of_several.get("form", {}).get("members", ()))
        return max(spec.world_size, later, int(alone.get("spec", {}).get("world_size", 0)))
    except (AttributeError, TypeError, ValueError) as error:
        raise WireError(f"a request in {folder} is not ours: {error!r}") from error


def find_longest_stall_s(folder: Path) -> float:
    """Seconds that the ranks of an attempt may stand still: half of their collectives' timeout.

    0 for any time, of an attempt that has one rank. Its environment may say how long they wait.
    """
    spec = AttemptSpec.read(folder / SPEC)
    if count_ranks(folder, spec) <= 1:
        return 0.0
    timeouts = [COLLECTIVE_S]
    for name, unit in TIMEOUTS.items():
        with suppress(KeyError, ValueError):
            timeouts.append(float(spec.env[name]) * unit)
    if own := spec.env.get(OWN_TIMEOUT):
        with suppress(ValueError):
            timeouts = [float(own)]
    return max(min(timeouts) / 2.0, SHORTEST_STALL_S)


def find_suspender(machine: LocalMachine) -> tuple[str, ...]:
    """The command that suspends processes with the CUDA driver of a machine; () without one.

    The driver refuses clients of MPS.
    """
    if not machine.gpus:
        return ()
    command = (sys.executable, "-P", "-m", "weft.node.asleep.cuda_checkpoint")
    try:
        check = subprocess.run([*command, "check"], capture_output=True, timeout=60.0, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if check.returncode == 0 else ()


@frozen
class SleepingAttempt:
    """The folder of an attempt that sleeps, and whether it still lives.

    Its ranks may stand still for `longest_stall_s`, 0 for any time; without a service it is woken
    after `alone_s`. `send` has a request in its folder reach its agent.
    """

    job: JobId
    number: int
    folder: Path
    there: Callable[[], bool]
    alone_s: float
    longest_stall_s: float
    send: Callable[[Path], Awaitable[None]]

    def __str__(self) -> str:
        return f"attempt {self.number} of job {self.job!r}"


async def _put_all_to_sleep(
    parts: Sequence[SleepingAttempt], by: str, state: str, within_s: float
) -> list[SleepState]:
    """Every part in a state, or EngineError and none."""
    asked = (put_to_sleep(part, by, state, within_s) for part in parts)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    if wrong := _first_wrong(answers):
        if len(parts) > 1:
            await _wake_all(parts, by, within_s)
        raise wrong
    return [answer for answer in answers if isinstance(answer, SleepState)]


async def _wake_all(
    parts: Sequence[SleepingAttempt], by: str, within_s: float
) -> BaseException | None:
    """Take back what someone wanted of every part; what went wrong with the first that cannot."""
    asked = (wake(part, by, within_s) for part in parts)
    return _first_wrong(await asyncio.gather(*asked, return_exceptions=True))


def _first_wrong(answers: Sequence[object]) -> BaseException | None:
    return next((answer for answer in answers if isinstance(answer, BaseException)), None)


async def put_to_sleep(
    attempt: SleepingAttempt, by: str, state: str, within_s: float
) -> SleepState:
    """Have an attempt in a state on behalf of someone; EngineError if that could not be had."""
    answer = SleepState(0)
    before = read_request(attempt.folder)
    wanted = AWAKE if before is None else before.wanted.get(by, AWAKE)
    try:
        answer = await _ask(attempt, by, state, within_s)
    finally:
        if DEPTH[answer.state] < DEPTH[state]:
            _leave(attempt, by, wanted)  # as it was
            await attempt.send(attempt.folder)
    if DEPTH[answer.state] < DEPTH[state]:
        raise EngineError(f"{attempt} is not {state}: {answer.reason}")
    return answer


async def wake(attempt: SleepingAttempt, by: str, within_s: float) -> None:
    """Take back what someone wanted; EngineError if the attempt should run now and cannot."""
    answer = await _ask(attempt, by, AWAKE, within_s)
    request = read_request(attempt.folder)
    if request is not None and DEPTH[answer.state] > DEPTH[request.state]:
        raise EngineError(f"{attempt} is still {answer.state}: {answer.reason}")


async def _ask(attempt: SleepingAttempt, by: str, state: str, within_s: float) -> SleepState:
    """The answer, whether or not it is what was asked; EngineError where no agent answers."""
    try:
        number = _leave(attempt, by, state)
        await attempt.send(attempt.folder)
        return await _answer(attempt, number, within_s)
    except (OSError, WireError) as error:
        raise EngineError(f"{attempt} cannot be asked to be {state}: {error}") from error


def end_probes(folder: Path) -> bool:
    """A service that starts over has no probe under way; whether the attempt was to sleep."""
    request = read_request(folder)
    if request is not None and PROBE in request.wanted:
        wanted = {who: state for who, state in request.wanted.items() if who != PROBE}
        write_request(folder, replace(request, number=time.time_ns(), wanted=wanted))
        wake_agent(folder)
    return request is not None and bool(request.wanted)


def _leave(attempt: SleepingAttempt, by: str, state: str) -> int:
    """Leave a request beside those of others; small files, so that each is written at once."""
    request = read_request(attempt.folder)
    before = {} if request is None else request.wanted
    wanted = {who: wish for who, wish in before.items() if who != by}
    if state != AWAKE:
        wanted[by] = state
    number = time.time_ns()
    write_request(
        attempt.folder, SleepRequest(number, wanted, attempt.longest_stall_s, attempt.alone_s)
    )
    return number


async def _answer(attempt: SleepingAttempt, number: int, within_s: float) -> SleepState:
    """The agent's word on this request, or on a later one."""
    until, pause = time.monotonic() + within_s, SHORTEST_S
    while True:
        state = read_state(attempt.folder)
        if state is not None and state.number >= number:
            return state
        if time.monotonic() > until or not attempt.there():
            raise EngineError(f"{attempt}: its agent does not answer")
        await asyncio.sleep(pause)
        pause = min(1.5 * pause, LONGEST_S)
