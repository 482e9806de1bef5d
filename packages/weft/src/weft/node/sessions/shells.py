"""Shells that people open beside a job's processes: its machine, folder, variables and devices.

Each has a terminal of its own and belongs to the client that opened it: it ends with the
connection, and with the attempt. What it prints is not the job's output.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from weft.base.errors import WireError
from weft.node.guard.enclosure import Enclosure
from weft.node.guard.identity import admit
from weft.node.ranks.command_plan import activate, launch_place, limits_of, shell_command
from weft.node.ranks.process import rank_environment
from weft.node.ranks.rank import Rank, start_rank
from weft.node.sessions.terminal import Terminal
from weft.wire.attempt import ADDRESS, SHELLS, AttemptSpec, read_json, short_path, write_whole
from weft.wire.doors import (
    DOOR,
    DOOR_ADDRESS,
    KEEPER,
    OPEN,
    REQUEST,
    Streams,
    encryption,
    find_inside,
    is_secret,
    pass_on,
    prove,
    public_name,
)
from weft.wire.processes import descendants, die_with_parent

MOST = 8  # of one attempt at once
# A script that is tried out in a shell runs alone: it does not speak or save for the job.
OF_THE_JOB = (
    *("WEFT_JOB", "WEFT_ATTEMPT", "WEFT_CHECKPOINTS", "WEFT_AGENT", "WEFT_COORDINATOR"),
    *("MASTER_ADDR", "MASTER_PORT"),
)
# An image has neither the shell of the node nor its settings, and maybe no bash.
INSIDE = ("sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


class Shells:
    """The shells of an attempt; nothing until it listens."""

    def __init__(
        self, folder: Path, spec: AttemptSpec, select: selectors.BaseSelector, enclosure: Enclosure
    ) -> None:
        self._folder, self._spec, self._select = folder, spec, select
        self._enclosure = enclosure
        self._open: list[_Shell] = []
        self._door = ShellStarter(folder)
        self._keep: Sequence[int] = ()

    def listen(self, keep: Sequence[int]) -> None:
        """Let people in; a shell holds the files of `keep` open, as the job's processes do."""
        self._keep = keep
        path = short_path(self._folder / SHELLS)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        Path(path).chmod(0o600)
        listener.listen(MOST)
        listener.setblocking(False)
        self._select.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def pids(self) -> list[int]:
        """The shells' own processes, and that of the door to them."""
        return [*(shell.rank.pid for shell in self._open), *self._door.pids()]

    def poll(self) -> None:
        """Let go those that have ended, and hang up on those that no client is connected to."""
        if self._spec.part:
            self._door.poll()
        for shell in [*self._open]:
            pid, status = os.waitpid(shell.rank.pid, os.WNOHANG)
            shell.terminal.poll()
            if pid:
                self._close(shell, os.waitstatus_to_exitcode(status))
            elif not shell.terminal.watched:
                shell.rank.signal(signal.SIGKILL if shell.hung_up else signal.SIGHUP)
                shell.hung_up = True

    def _accept(self, listener: socket.socket) -> None:
        conversation = admit(listener)
        if conversation is None:
            return
        if len(self._open) >= MOST:
            conversation.close()
            return
        rank = start_shell(self._spec, self._folder, self._enclosure.group, self._keep)
        os.set_blocking(rank.output, False)
        shell = _Shell(rank, Terminal(self._folder, self._select, idle_s=0.0))
        self._open.append(shell)
        read = partial(self._read, shell)
        self._select.register(rank.output, selectors.EVENT_READ, read)
        if rank.pidfd is not None:
            self._select.register(rank.pidfd, selectors.EVENT_READ, self.poll)
        shell.terminal.connect(rank.output, read)
        shell.terminal.admit(conversation)

    def _read(self, shell: _Shell) -> None:
        try:
            chunk = os.read(shell.rank.output, 65_536)
        except BlockingIOError:
            return
        except OSError:  # how the end of a terminal is reported
            chunk = b""
        if chunk:
            shell.terminal.show(chunk)
        else:
            self._select.unregister(shell.rank.output)

    def _close(self, shell: _Shell, code: int) -> None:
        self._open.remove(shell)
        if shell.rank.pidfd is not None:
            self._select.unregister(shell.rank.pidfd)
            os.close(shell.rank.pidfd)
        shell.rank.signal(signal.SIGKILL)  # what it started and left behind
        shell.terminal.show(shell.rank.read_rest())
        with suppress(KeyError):
            self._select.unregister(shell.rank.output)
        os.close(shell.rank.output)
        shell.terminal.close_ended(code)


@dataclass(slots=True)
class _Shell:
    rank: Rank
    terminal: Terminal
    hung_up: bool = False


def start_shell(
    spec: AttemptSpec, folder: Path, group: Path | None, keep: Sequence[int] = ()
) -> Rank:
    """A shell with a terminal, in the surroundings of an attempt's processes."""
    place = launch_place(spec, spec.master_port)
    env = rank_environment(spec, folder, 0, socket="", port=0, alone=place)
    env = {name: value for name, value in env.items() if name not in OF_THE_JOB}
    env.setdefault("TERM", "xterm-256color")
    shell = INSIDE if spec.container else shell_command(env.get("SHELL") or "bash")
    return start_rank(
        -1,
        command=activate(spec, shell),
        env=env,
        workdir=spec.workdir,
        limits=limits_of(spec, 0, place, group),
        keep=keep,
        user=spec.user,
        pty=True,
    )


# ---- The way into an attempt from another machine, opened when a service asks for it
#
#     python -m weft.node.sessions.shells FOLDER AGENT
#
# A process beside the agent that started it, and ended with it: an agent talks to its ranks and
# must not wait for a network. It exits when no client has connected for a while.


IDLE_S = 900.0
LOOK_S = 5.0
MOST_INSIDE = 128  # people and connections to ports at once


class ShellStarter:
    """Starts the process for each request that is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._secret = ""
        self._process: subprocess.Popen[bytes] | None = None

    def pids(self) -> list[int]:
        """Return the processes of the door that is open."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None
        return [self._process.pid] if self._process else []

    def poll(self) -> None:
        """Open one if someone asks; a request that is spoilt opens none."""
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
        command = [sys.executable, "-P", "-m", "weft.node.sessions.shells", str(self._folder)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [*command, str(os.getpid())], stdin=subprocess.DEVNULL
        )


class Door:
    """A port that leads to shells, to the terminal, and to ports of the job's own processes."""

    def __init__(self, folder: Path, agent: int, secret: str) -> None:
        self._folder, self._agent, self._secret = folder, agent, secret
        self._inside = 0

    async def serve(self, address: str) -> None:
        """Accept clients that know the secret, until none has connected for a while."""
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
            if self._inside <= MOST_INSIDE:
                await prove((reader, writer), self._secret, KEEPER)
                await self._lead((reader, writer))
        except (WireError, OSError, ValueError):
            pass  # it knows nothing, or has gone
        finally:
            self._inside -= 1
            writer.close()

    async def _lead(self, caller: Streams) -> None:
        wish = (await caller[0].readline()).decode().strip()
        inside = await find_inside(self._folder, wish, descendants(self._agent))
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


def main(folder: Path, agent: int) -> None:
    """Keep the door that the request in `folder` asks for."""
    die_with_parent()
    request = read_json(folder / REQUEST)
    if request is None or os.getppid() != agent:
        return
    given = os.environ.get(DOOR_ADDRESS) or os.environ.get(ADDRESS)
    address = given or str(request["address"])
    asyncio.run(Door(folder, agent, request["secret"]).serve(address))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
