"""Freezes and wakes attempts over several nodes: all of their parts, or none.

Agents elsewhere cannot tell whether a service listens to them. Requests to sleep are therefore
written anew every few seconds, and parts whose request grows old are woken by their agents.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from weft.core.errors import EngineError
from weft.core.model.job import JobId
from weft.core.stops import PROBE
from weft.engines.attempts.asleep import FREEZE_S, Attempt, find_air_s, put_to_sleep, wake
from weft.engines.attempts.watch import nudge
from weft.engines.fleet.attempts import Run
from weft.engines.fleet.port import Channel, Gang, Key
from weft.wire.errors import WireError
from weft.wire.sleep import AWAKE, FROZEN, SLEEP, read_request, write_request

BEAT_S = 5.0  # between two renewals
ALONE_S = 60.0  # until parts are woken whose request was not renewed
SPOILT = (OSError, WireError)


@dataclass
class FleetSleep:
    """Who sleeps among `runs`, an engine's attempts; `poke` has their folders read at once."""

    channel: Channel
    runs: Mapping[Key, Run]
    poke: Callable[[], None]
    _asleep: set[Key] = field(default_factory=set)

    async def freeze(self, job: JobId, attempt: int, by: str) -> None:
        """Every part, or EngineError and none."""
        key = (job, attempt)
        if key not in self.runs:
            raise EngineError(f"attempt {attempt} of job {job!r} does not run")
        parts = self._parts(key)
        self._asleep.add(key)
        asked = (put_to_sleep(part, by, FROZEN, FREEZE_S) for part in parts)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if wrong := [one for one in answers if isinstance(one, BaseException)]:
            await self._wake(parts, by)
            raise wrong[0]

    async def thaw(self, job: JobId, attempt: int, by: str) -> None:
        """Every part; an attempt that is over is not asleep."""
        if (job, attempt) not in self.runs:
            return
        answers = await self._wake(self._parts((job, attempt)), by)
        if wrong := [one for one in answers if isinstance(one, BaseException)]:
            raise wrong[0]

    def take_up(self, gang: Gang) -> None:
        """An attempt from before a restart may sleep; nobody probes it any more."""
        for part in gang.parts:
            try:
                request = read_request(part.folder)
            except SPOILT:
                continue  # its agent ends it for that
            if request is not None and request.wanted:
                wanted = {who: state for who, state in request.wanted.items() if who != PROBE}
                number = request.number if wanted == request.wanted else time.time_ns()
                write_request(part.folder, replace(request, number=number, wanted=wanted))
                self._asleep.add(gang.key)

    async def renew(self) -> None:
        """One turn: all requests to sleep are written anew."""
        await asyncio.sleep(BEAT_S)
        self._asleep &= self.runs.keys()
        wrong: list[BaseException] = []
        for key in [*self._asleep]:
            try:
                await self.channel.send(self._renew(key))
            except (*SPOILT, EngineError) as error:  # the others are renewed all the same
                wrong.append(error)
        if wrong:
            raise wrong[0]

    def _renew(self, key: Key) -> Sequence[Path]:
        files = []
        for part in self.runs[key].watch.gang.parts:
            request = read_request(part.folder)
            if request is not None and request.state != AWAKE:
                write_request(part.folder, replace(request, beat=time.time_ns()))
                files.append(part.folder / SLEEP)
        if not files:
            self._asleep.discard(key)
        return files

    def _parts(self, key: Key) -> list[Attempt]:
        folders = [one.part.folder for one in self.runs[key].watch.parts]
        there = partial(self.runs.__contains__, key)
        try:
            return [
                Attempt(*key, folder, there, ALONE_S, find_air_s(folder), self._send)
                for folder in folders
            ]
        except SPOILT as error:
            raise EngineError(f"attempt {key[1]} of job {key[0]!r}: {error}") from error

    async def _wake(self, parts: Sequence[Attempt], by: str) -> list[BaseException | None]:
        asked = (wake(part, by, FREEZE_S) for part in parts)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def _send(self, folder: Path) -> None:
        await self.channel.send([folder / SLEEP])
        await asyncio.to_thread(nudge, folder)
        self.poke()
