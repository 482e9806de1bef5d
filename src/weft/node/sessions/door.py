"""The way into an attempt from another machine, opened when a service asks for it.

    python -m weft.node.sessions.door FOLDER AGENT

A process beside the agent that started it, and ended with it: an agent talks to its ranks and
must not wait for a network. It leaves when nobody has come in for a while.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from weft.wire.attempt import ADDRESS, SHELLS, TAG, TERMINAL, read_json, short_path, write_whole
from weft.wire.doors import (
    DOOR,
    DOOR_ADDRESS,
    KEEPER,
    OPEN,
    REQUEST,
    Streams,
    encryption,
    is_secret,
    pass_on,
    prove,
    public_name,
)
from weft.wire.errors import WireError
from weft.wire.processes import descendants, die_with_parent, find_port, find_tagged

IDLE_S = 900.0
LOOK_S = 5.0
MOST = 128  # people and connections to ports at once


class DoorKeeper:
    """Starts the process for each request that is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secret = ""
        self._process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        """Of the door that is open."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return [self._process.pid] if self._process else []

    def look(self) -> None:
        """Open one if somebody asks; a request that is spoilt opens none."""
        try:
            request = read_json(self._folder / REQUEST)
        except (WireError, OSError):
            return
        secret = request.get("secret") if request else None
        if not is_secret(secret) or secret == self._secret:
            return
        self._secret = secret
        for _ in self.pids():
            assert self._process is not None
            self._process.kill()
            self._process.wait()
        command = [sys.executable, "-P", "-m", "weft.node.sessions.door", str(self._folder)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, str(os.getpid())], stdin=subprocess.DEVNULL
        )


class Door:
    """A port that leads to shells, to the terminal, and to ports of the job's own processes."""

    def __init__(self, folder: Path, agent: int, secret: str) -> None:
        self._folder, self._agent, self._secret = folder, agent, secret
        self._inside = 0

    async def keep(self, address: str) -> None:
        """Let those in who know the secret, until nobody has come for a while."""
        server = await asyncio.start_server(self._enter, address, 0, ssl=encryption(keeper=True))
        at = server.sockets[0].getsockname()[:2]  # a name may mean something here alone
        write_whole(self._folder / DOOR, {"secret": public_name(self._secret), "at": at})
        idle = 0.0
        try:
            while idle < IDLE_S:
                await asyncio.sleep(LOOK_S)
                idle = 0.0 if self._inside else idle + LOOK_S
        finally:
            server.close()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._inside += 1
        try:
            if self._inside <= MOST:
                await prove((reader, writer), self._secret, KEEPER)
                await self._lead((reader, writer))
        except (WireError, OSError, ValueError):
            pass  # it knows nothing, or has gone
        finally:
            self._inside -= 1
            writer.close()

    async def _lead(self, caller: Streams) -> None:
        wish = (await caller[0].readline()).decode().strip()
        inside = await self._find(wish)
        answer = OPEN if isinstance(inside, tuple) else inside
        caller[1].write(f"{answer}\n".encode())
        if not isinstance(inside, tuple):
            await caller[1].drain()
            return
        ways = [
            asyncio.ensure_future(pass_on(caller[0], inside[1])),
            asyncio.ensure_future(pass_on(inside[0], caller[1])),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        inside[1].close()

    async def _find(self, wish: str) -> Streams | str:
        """What `terminal`, `shell` or `port N` leads to; why it leads nowhere."""
        what, _, port = wish.partition(" ")
        if what == "port":
            at = await asyncio.to_thread(find_port, self._processes(), int(port))
            return await asyncio.open_connection(*at) if at else "nobody listens there"
        name = {"shell": SHELLS, "terminal": TERMINAL}.get(what)
        path = Path(short_path(self._folder / name)) if name else None
        if path is None or not path.is_socket():
            return "there is none"
        return await asyncio.open_unix_connection(str(path))

    def _processes(self) -> set[int]:
        """Of the attempt, here; neither its agent nor this one."""
        pids = {*descendants(self._agent), *find_tagged(TAG, str(self._folder))}
        return pids - {self._agent, os.getpid()}


def main(folder: Path, agent: int) -> None:
    """Keep the door that the request in `folder` asks for."""
    die_with_parent()
    request = read_json(folder / REQUEST)
    if request is None or os.getppid() != agent:
        return
    given = os.environ.get(DOOR_ADDRESS) or os.environ.get(ADDRESS)
    address = given or str(request["address"])
    asyncio.run(Door(folder, agent, request["secret"]).keep(address))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
