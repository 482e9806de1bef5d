"""Shells that people open beside a job's processes: its machine, folder, variables and devices.

Each has a terminal of its own and belongs to the client that opened it: it ends with the
connection, and with the attempt. What it prints is not the job's output.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from weft.node.guard.enclosure import Enclosure
from weft.node.guard.identity import may_speak
from weft.node.ranks.command_plan import activate, limits_of, place_of, shell_command
from weft.node.ranks.environment import rank_environment
from weft.node.ranks.rank import Rank, start_rank
from weft.node.sessions.door import DoorKeeper
from weft.node.sessions.terminal import Terminal
from weft.wire.attempt import SHELLS, AttemptSpec, short_path

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
        self,
        folder: Path,
        spec: AttemptSpec,
        select: selectors.BaseSelector,
        enclosure: Enclosure,
    ) -> None:
        self._folder, self._spec, self._select = folder, spec, select
        self._enclosure = enclosure
        self._open: list[_Shell] = []
        self._door = DoorKeeper(folder)
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

    def look(self) -> None:
        """Let go those that have ended, and hang up on those that nobody looks at."""
        if self._spec.part:
            self._door.look()
        for shell in [*self._open]:
            pid, status = os.waitpid(shell.rank.pid, os.WNOHANG)
            shell.terminal.look()
            if pid:
                self._close(shell, os.waitstatus_to_exitcode(status))
            elif not shell.terminal.watched:
                shell.rank.signal(signal.SIGKILL if shell.hung_up else signal.SIGHUP)
                shell.hung_up = True

    def _accept(self, listener: socket.socket) -> None:
        conversation, _ = listener.accept()
        if len(self._open) >= MOST or not may_speak(conversation):
            conversation.close()
            return
        rank = start_shell(self._spec, self._folder, self._enclosure.group, self._keep)
        os.set_blocking(rank.output, False)
        shell = _Shell(rank, Terminal(self._folder, self._select, idle_s=0.0))
        self._open.append(shell)
        read = partial(self._read, shell)
        self._select.register(rank.output, selectors.EVENT_READ, read)
        if rank.pidfd is not None:
            self._select.register(rank.pidfd, selectors.EVENT_READ, self.look)
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
        shell.terminal.end(code)


@dataclass(slots=True)
class _Shell:
    """One of them, with its terminal."""

    rank: Rank
    terminal: Terminal
    hung_up: bool = False


def start_shell(
    spec: AttemptSpec, folder: Path, group: Path | None, keep: Sequence[int] = ()
) -> Rank:
    """A shell with a terminal, in the surroundings of an attempt's processes."""
    place = place_of(spec, spec.master_port)
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
