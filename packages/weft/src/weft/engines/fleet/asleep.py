"""Freezes and wakes attempts over several nodes.

Agents elsewhere cannot tell whether a service listens to them. Requests to sleep are therefore
written again every few seconds, and parts whose request grows old are woken by their agents.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from weft.base.errors import WireError
from weft.core.errors import EngineError
from weft.core.model.job import JobId
from weft.core.stops import Rung
from weft.engines.attempts.agent_engine import AgentEngine
from weft.engines.attempts.asleep import FREEZE_S, end_probes
from weft.engines.fleet.fleet_loop import FleetLoop
from weft.engines.fleet.port import Channel, Gang, Key, Manager
from weft.wire.sleep import AWAKE, SLEEP, read_request, write_request

BEAT_S = 5.0  # between two renewals
ALONE_S = 60.0  # until parts are woken whose request was not renewed


class SleepsOnNodes(AgentEngine):
    """Sleeping for an engine of several nodes, as far as its manager lets it."""

    _wake_s, wake_alone_s = FREEZE_S, ALONE_S
    _manager: Manager
    _channel: Channel
    _loop: FleetLoop
    _asleep: set[Key]

    @property
    def stops(self) -> frozenset[Rung]:
        """Freezing, where others may use the devices of frozen jobs."""
        return frozenset((Rung.FREEZE,) if self._manager.abilities.sleeps else ())

    async def freeze(self, job: JobId, attempt: int, *, by: str) -> None:
        await super().freeze(job, attempt, by=by)
        self._asleep.add((job, attempt))

    def _take_up_sleeper(self, gang: Gang) -> None:
        """An attempt from before a restart may sleep; it is no longer probed."""
        for part in gang.parts:
            try:
                if end_probes(part.folder):
                    self._asleep.add(gang.key)
            except (OSError, WireError):
                continue  # its agent ends it for that

    async def _renew_sleepers(self) -> None:
        """One turn: all requests to sleep are written again."""
        await asyncio.sleep(BEAT_S)
        self._asleep &= self._loop.watched.keys()
        wrong: list[Exception] = []
        for key in [*self._asleep]:
            try:
                await self._channel.send(self._renew(key))
            except (OSError, WireError, EngineError) as error:
                wrong.append(error)  # the others are renewed all the same
        if wrong:
            raise wrong[0]

    def _renew(self, key: Key) -> Sequence[Path]:
        files = []
        for part in self._loop.watched[key].watch.gang.parts:
            request = read_request(part.folder)
            if request is not None and request.state != AWAKE:
                write_request(part.folder, replace(request, beat=time.time_ns()))
                files.append(part.folder / SLEEP)
        if not files:
            self._asleep.discard(key)
        return files

    async def _send_request(self, folder: Path) -> None:
        await self._channel.send([folder / SLEEP])
        await super()._send_request(folder)
        self._loop.read_soon()
