"""Reaching into attempts: on other nodes through doors that their agents open (`weft.wire.doors`).

Whatever started the agents, this is the same: it needs that the service reaches the nodes by the
addresses at which they reach each other.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from weft.base.errors import WireError
from weft.core.model.job import JobId
from weft.core.protocols import Way
from weft.engines.attempts.watch import wake_agent
from weft.engines.fleet.fleet_loop import FleetLoop
from weft.engines.fleet.port import AttemptPart
from weft.wire.attempt import read_json, write_whole
from weft.wire.doors import (
    CALLER,
    DOOR,
    LIMIT_S,
    OPEN,
    REQUEST,
    Streams,
    encryption,
    find_inside,
    prove,
    public_name,
)

OPENING_S = 60.0  # for an agent to see the request, which a shared file system may show late
PAUSE_S = 0.1


@dataclass
class FleetSessions:
    """Sessions in the attempts that `loop` watches."""

    loop: FleetLoop
    _doors: dict[Path, tuple[str, str, int]] = field(default_factory=dict)
    _opening: dict[Path, asyncio.Lock] = field(default_factory=dict)

    async def connect(self, job: JobId, attempt: int, to: Way) -> Streams | None:
        """Its terminal and shells are on the node of rank 0, its ports on any."""
        run = self.loop.watched.get((job, attempt))
        if run is None or not run.watch.started:
            return None
        wish = f"port {to}" if isinstance(to, int) else to
        if run.watch.on_this_machine:
            here = run.watch.parts[0]
            inside = await find_inside(here.part.folder, wish, [*here.pids.values()])
            return None if isinstance(inside, str) else inside
        parts = run.watch.gang.parts
        for part in parts if isinstance(to, int) else parts[:1]:
            if (streams := await self._enter(part, wish)) is not None:
                return streams
        return None

    async def _enter(self, part: AttemptPart, wish: str) -> Streams | None:
        known = self._doors.get(part.folder)
        if known is not None:
            with suppress(OSError):  # it has closed: no client connected for a while
                return await _go_in(*known, wish)
        async with self._opening.setdefault(part.folder, asyncio.Lock()):
            if self._doors.get(part.folder) == known:
                self._doors[part.folder] = await self._have_opened(part)
        return await _go_in(*self._doors[part.folder], wish)

    async def _have_opened(self, part: AttemptPart) -> tuple[str, str, int]:
        """The secret and the address of a new door."""
        folders = {
            part.folder for run in self.loop.watched.values() for part in run.watch.gang.parts
        }
        self._doors = {folder: at for folder, at in self._doors.items() if folder in folders}
        self._opening = {at: lock for at, lock in self._opening.items() if at in folders}
        secret = os.urandom(32).hex()
        request = {"secret": secret, "address": self.loop.machines[part.node].address}
        await asyncio.to_thread(write_whole, part.folder / REQUEST, request)
        await self.loop.channel.send([part.folder / REQUEST])
        await asyncio.to_thread(wake_agent, part.folder)
        until = time.monotonic() + OPENING_S
        while time.monotonic() < until:
            with suppress(WireError, KeyError, TypeError, ValueError):
                door = await asyncio.to_thread(read_json, part.folder / DOOR)
                if door is not None and door["secret"] == public_name(secret):
                    host, port = door["at"]
                    return secret, str(host), int(port)
            self.loop.read_soon()
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError(f"its agent on {part.node} opened no door within {OPENING_S:g} s")


async def _go_in(secret: str, host: str, port: int, wish: str) -> Streams | None:
    """Through a door to what is wished for; None if there is no such thing."""
    try:
        async with asyncio.timeout(LIMIT_S):
            streams = await asyncio.open_connection(
                host, port, ssl=encryption(keeper=False), server_hostname=""
            )
            await prove(streams, secret, CALLER)
            streams[1].write(f"{wish}\n".encode())
            answer = (await streams[0].readline()).decode(errors="replace").strip()
    except WireError as error:
        raise ConnectionError(str(error)) from error
    if answer == OPEN:
        return streams
    streams[1].close()
    if not answer:
        raise ConnectionError("the agent's door closed")
    return None
