"""Listens to all attempts of an engine, and goes on listening whatever one of them does.

One task looks at every attempt in turn, in threads of its own. An attempt whose files are not what
an agent writes is put in quarantine: its processes are ended, its folder is set aside, its job is
told failed. What affects all jobs, such as a full disk or too many open files, is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.events.event import Event
from weft.core.model.job import JobId
from weft.core.protocols import EngineHealth
from weft.engines.attempts.clearing import end_all
from weft.engines.attempts.job_folders import mark_of
from weft.engines.attempts.rounds import AGAIN_S, MACHINE_WIDE, AttemptLoop
from weft.engines.attempts.spawn import reap
from weft.engines.attempts.watch import Watched
from weft.wire.attempt import AGENT_LOG, CLAIM, EVENTS, SPEC, short_path
from weft.wire.errors import WireError
from weft.wire.processes import alive, kill_all

log = logging.getLogger(__name__)

POLL_S = 0.5  # agents poke; this is for those whose poke was lost
SHORTEST_PAUSE_S = 0.005
CHORES_S = 1.0
LINGER_S = 10.0  # what an agent may take to be gone after its last word
END_S = (
    10.0  # for all processes of an attempt to be gone after SIGKILL, before a person is notified
)


@dataclass
class Listener(AttemptLoop[Watched]):
    """Those of this machine; `chores` is called every second or so, in a thread."""

    chores: Callable[[], None]
    _leaving: list[int] = field(default_factory=list)
    _lingering: list[tuple[Watched, float]] = field(default_factory=list)
    _bell: socket.socket | None = None
    _chored: float = 0.0

    @property
    def health(self) -> EngineHealth:
        """Whether everything is heard and every process that should go has gone."""
        troubles = self._rounds.troubles
        return EngineHealth(not troubles, "; ".join(troubles.values()))

    # ---- life

    def open_bell(self) -> str:
        """The socket that agents poke; begins to listen to it."""
        path = short_path(self.root / "engine.sock")
        Path(path).unlink(missing_ok=True)
        self._bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._bell.setblocking(False)
        self._bell.bind(path)
        asyncio.get_running_loop().add_reader(self._bell, self._poked, self._bell)
        return path

    def begin(self) -> None:
        """Look at the attempts from now on."""
        self._rounds.begin("listen to its jobs", self._turn)

    async def close(self) -> None:
        """Stop listening; agents go on."""
        await super().close()
        if self._bell is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
            self._bell.close()

    # ---- attempts

    def watch(self, job: JobId, attempt: int, folder: Path) -> Watched:
        """The attempt, watched from now on if it was not."""
        key = (job, attempt)
        if key not in self.watched:
            self.watched[key] = Watched(job, attempt, folder, spawned=time.monotonic())
        return self.watched[key]

    def forget(self, watched: Watched) -> None:
        """It is over: nothing more is reported of it."""
        if watched.pid is not None:
            self._leaving.append(watched.pid)
        self._rounds.troubles.pop(_name(watched), None)
        self.watched.pop((watched.job, watched.attempt), None)
        self.left((watched.job, watched.attempt))
        self._lingering.append((watched, time.monotonic() + LINGER_S))
        self._see_off_agents()

    def quarantine(self, watched: Watched, why: str) -> None:
        """End an attempt that cannot be watched, and set its folder aside."""
        log.error("attempt=%s quarantined: %s", _name(watched), why)
        self._end(watched, watched.failure(f"quarantined: {why}"), aside=True)

    def end_stranger(self, folder: Path, groups: Path | None) -> bool:
        """End an attempt that is marked as running that no job owns; False if it never began."""
        name = folder.parent.name
        group = None if groups is None else groups / f"{name}@{folder.name}"
        if _never_began(folder, group):
            return False
        stranger = self.watch(JobId(f"{name}?"), int(folder.name), folder)
        stranger.silent = True
        stranger.group = group
        try:
            stranger.over = stranger.ask_to_stop(0.0)
        except (OSError, WireError) as error:
            stranger.trouble = str(error)
        return True

    def _see_off_agents(self) -> None:
        """Agents have nothing to do after their last word; the mark stays until they are gone."""
        self._lingering = [
            (watched, until) for watched, until in self._lingering if self._stays(watched, until)
        ]

    def _stays(self, watched: Watched, until: float) -> bool:
        agent = watched.footprint(None).agent
        try:
            there = agent is not None and alive(*agent)
        except OSError:
            return True  # it cannot be looked at now
        if agent is not None and there:
            if time.monotonic() > until:
                log.warning("attempt=%s is over; its agent is ended", _name(watched))
                kill_all([agent[0]])
            return True
        with contextlib.suppress(FileNotFoundError):
            mark_of(self.root, watched.folder).unlink()
        return False

    # ---- the loop

    async def _turn(self) -> None:
        await self._await_news(POLL_S)
        wrong = await self._read_all(
            {key: watched for key, watched in self.watched.items() if watched.ending is None}
        )
        if time.monotonic() - self._chored > CHORES_S:
            self._chored = time.monotonic()
            await self.run(self.chores)
        self._leaving = [pid for pid in self._leaving if not reap(pid)]
        self._see_off_agents()
        if wrong:
            raise wrong[0]
        await asyncio.sleep(SHORTEST_PAUSE_S)

    async def _settle(self, attempt: Watched, error: Exception | None, now: float) -> None:  # noqa: ARG002
        machine_wide = isinstance(error, OSError) and error.errno in MACHINE_WIDE
        if error is not None and not machine_wide:
            self.quarantine(attempt, str(error) or repr(error))
        elif attempt.over:
            self.forget(attempt)
        elif attempt.ending is not None:
            self._end(attempt, attempt.ending)
        if error is not None and machine_wide:
            raise error

    def _end(self, watched: Watched, event: Event, *, aside: bool = False) -> None:
        watched.ending = event
        self._rounds.spawn(self._see_gone(watched, event, aside=aside))

    async def _see_gone(self, watched: Watched, event: Event, *, aside: bool) -> None:
        """Tell an end once the last process of the attempt is gone, however long that takes."""
        own = watched.folder.parent
        others = any(
            two is not watched and two.folder.parent == own for two in self.watched.values()
        )
        lock = None if others else own / "running.lock"
        while True:
            try:
                left = await self.run(lambda: end_all(watched.footprint(lock), END_S))
                if not left and aside:
                    await self.run(lambda: set_aside(self.root, watched.folder))
            except Exception as error:
                self._rounds.troubles[_name(watched)] = f"{_name(watched)} cannot be ended: {error}"
                log.warning("attempt=%s cannot be ended, trying again: %s", _name(watched), error)
                await asyncio.sleep(AGAIN_S)
                continue
            if not left:
                break
            shown = ", ".join(map(str, left[:5]))
            self._rounds.troubles[_name(watched)] = (
                f"processes {shown} of {_name(watched)} cannot be killed"
            )
            log.error("attempt=%s pids=%s cannot be killed; its devices stay held", watched, shown)
            await asyncio.sleep(AGAIN_S)
        if not watched.silent:
            self.told(event)
        self.forget(watched)

    def _poked(self, bell: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while bell.recv(64):
                pass
        self._poke.set()


def _never_began(folder: Path, group: Path | None) -> bool:
    """Whether a service died while it made an attempt's folder, before anything ran there."""
    written = any((folder / name).exists() for name in (SPEC, CLAIM, AGENT_LOG, EVENTS))
    return folder.is_dir() and not written and not (group is not None and group.exists())


def set_aside(state: Path, folder: Path) -> None:
    """Move what is left of a quarantined attempt to where nothing looks at it."""
    room = state / "quarantine"
    room.mkdir(mode=0o700, exist_ok=True)
    name = f"{folder.parent.name}@{folder.name}"
    for number in range(1000):
        with contextlib.suppress(FileNotFoundError):
            try:
                folder.rename(room / (f"{name}.{number}" if number else name))
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                continue
        return
    raise WireError(f"{room} holds a thousand folders of {name}")


def _name(watched: Watched) -> str:
    return f"{watched.job}@{watched.attempt}"
