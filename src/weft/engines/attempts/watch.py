"""One attempt as seen from outside: its folder, its agent's log, and whether that agent lives.

Everything here touches files that the job may have replaced: it belongs off the event loop, and
whatever is not as an agent writes it raises WireError.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from weft.core.events.event import Event, Failed, Finished, Started, StartFailed, Stopped
from weft.core.model.job import JobId
from weft.engines.attempts.agent_log import AgentLog, read_end, read_line, read_resize
from weft.engines.attempts.clearing import Footprint, Process
from weft.engines.attempts.health_board import AgentHealth, read_health
from weft.engines.machine.host_part import NOTHING_ASKED, Asked
from weft.wire.attempt import (
    AGENT_LOG,
    CLAIM,
    EVENTS,
    STOP,
    put_claim,
    read_json,
    short_path,
    write_whole,
)
from weft.wire.errors import WireError
from weft.wire.processes import alive, descendants, is_frozen
from weft.wire.regular_files import read_regular

LOOK_S = 1.0  # between two looks whether an agent lives
CLAIM_S = 20.0  # how long an agent may take to come up
STARTING_S = 60.0  # how long an agent may then take to start its ranks
FROZEN_S = 8.0  # how long an agent may stand still before its attempt is given up
OVERDUE_S = 15.0  # what an agent may take to end its ranks after their time to leave is over
RANK_LOG = re.compile(r"rank-(\d{1,7})\.log")


@dataclass(slots=True)
class Watched:
    """An attempt whose end has not been reported yet.

    `silent` is for an attempt of no job: nothing of it is reported. `ending` is what to report once
    its last process is gone; `over` that it has been reported. `trouble` is why it cannot be
    watched at all.
    """

    job: JobId
    attempt: int
    folder: Path
    pid: int | None = None
    spawned: float = 0.0
    silent: bool = False
    trouble: str = ""
    asked: Asked = NOTHING_ASKED
    group: Path | None = None
    over: bool = False
    ending: Event | None = None
    deadline: float = inf
    health: list[AgentHealth] = field(default_factory=list)
    log: AgentLog = field(init=False)
    _looked: float = 0.0
    _claim: Process | None = None
    _ranks: dict[str, Process] = field(default_factory=dict)
    _codes: dict[str, int] = field(default_factory=dict)
    _stopping: bool = False
    _started: bool = False
    _frozen: float = inf
    _seen: float = inf

    def __post_init__(self) -> None:
        self.log = AgentLog(self.folder)

    @property
    def more(self) -> bool:
        """Whether its agent's log was not read to its end."""
        return self.log.more

    @property
    def pids(self) -> dict[int, int]:
        """The processes of ranks that have not ended, by number."""
        ended = set(self._codes)
        return {int(name): pid for name, (pid, _) in self._ranks.items() if name not in ended}

    # ---- news

    def news(self, now: float) -> Iterator[Event]:
        """What its agent wrote down since the last call; whether that lives, if it is time to look.

        Afterwards it may be `over`, or `ending`.
        """
        if self.trouble:
            raise WireError(self.trouble)
        yield from self.log.events(self._read)
        if self.over or self.more or now - self._looked < LOOK_S:
            return
        claim = self._claimed()
        if claim is None:
            self._unclaimed(now)
        elif not alive(*claim):
            yield from self.log.events(self._read)  # it may have written its last line just before
            if not self.over and not self.more:
                self.ending = self._agent_died()
        else:
            self._look_at_agent(claim[0], now)
        self._looked = now

    def _read(self, line: dict[str, Any]) -> Iterator[Event]:
        job, attempt = self.job, self.attempt
        if "ranks" in line:  # when it started, after a setup, and when they have changed
            self._ranks = {name: (int(p), int(b)) for name, (p, b) in line["ranks"].items()}
        match line["event"]:
            case "started":
                self._started = True
                yield Started(job, attempt)
            case "resizable" | "resized" | "resize_failed":
                yield read_resize(job, attempt, line)
            case "exited":
                self._codes[str(line["rank"])] = int(line["code"])
            case "health":
                self.health.append(read_health(line))
            case "stopping":
                self._stopping = True
            case "ended":
                agent = self._claim or self._claimed()
                if agent is not None and alive(*agent) and descendants(agent[0]):
                    raise WireError(f"{EVENTS} says that it ended, but it runs")
                self.over = True
                yield read_end(job, attempt, line)
            case _:
                yield from read_line(job, attempt, line)

    # ---- when something went wrong

    def _claimed(self) -> Process | None:
        """The process that runs the attempt; WireError if it had one that is gone."""
        body = read_json(self.folder / CLAIM)
        if body is None:
            if not self.folder.is_dir():
                raise WireError("its folder was removed")
            if self._claim is not None or self.log.offset:
                raise WireError(f"{CLAIM} was removed")
            return None
        try:
            self._claim = int(body["pid"]), int(body["began"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"{CLAIM} is not an agent's: {error!r}") from error
        return self._claim

    def _unclaimed(self, now: float) -> None:
        if not self._gone() and now - self.spawned < CLAIM_S:
            return
        if self.revoke():
            why = f"its agent did not come up: {last_line(self.folder / AGENT_LOG)}"
            self.ending = StartFailed(self.job, self.attempt, why, lost=True)

    def _gone(self) -> bool:
        """Whether the agent we started has ended, of its own accord or because another has it."""
        if self.pid is None:
            return False
        try:
            done, _ = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # seen to its end before
            return True
        return done != 0

    def _look_at_agent(self, pid: int, now: float) -> None:
        """An agent that stands still is asked to go on, then given up; so is one that is late."""
        self._seen = min(self._seen, now)
        if not self._started and now - self._seen > STARTING_S:
            raise WireError(f"its agent runs, and {EVENTS} does not say that it started")
        if not is_frozen(pid):
            self._frozen = inf
        elif self._frozen == inf:
            self._frozen = now
            os.kill(pid, signal.SIGCONT)
        elif now - self._frozen > FROZEN_S:
            self.ending = self._given_up("its agent was stopped by a signal")
        if now > self.deadline:
            self.ending = self._given_up("its agent did not end it in time")

    def _given_up(self, why: str) -> Event:
        if (self.folder / STOP).exists():
            return Stopped(self.job, self.attempt)
        return Failed(self.job, self.attempt, why, lost=True, agent_died=True)

    def _agent_died(self) -> Event:
        if self._ranks and not self._stopping and self._ranks.keys() <= self._codes.keys():
            bad = {rank: code for rank, code in self._codes.items() if code}
            if not bad:  # all it had to say was that it is done
                return Finished(self.job, self.attempt)
        return self._given_up("its agent died")

    def footprint(self, lock: Path | None) -> Footprint:
        """What its processes are known by."""
        ranks = tuple(self._ranks.values())
        return Footprint(self.folder, self._claim, ranks, lock, self.group)

    def failure(self, why: str) -> Event:
        """Its end when it cannot be watched any more."""
        if self._started:
            return Failed(self.job, self.attempt, why)
        return StartFailed(self.job, self.attempt, why)

    # ---- requests

    def ask_to_stop(self, grace_s: float) -> bool:
        """Leave a request for the agent; True if none will ever come and all is over."""
        over = ask_to_stop(self.folder, grace_s)
        self.deadline = min(self.deadline, time.monotonic() + grace_s + OVERDUE_S)
        return over

    def revoke(self) -> bool:
        """Claim the attempt so that no agent can; False if one has or had it."""
        return revoke(self.folder)


def ask_to_stop(folder: Path, grace_s: float) -> bool:
    """Ask an agent to end its ranks within `grace_s`, unless it was asked to sooner.

    True if no agent has the attempt in `folder`, and none ever will.
    """
    present = read_json(folder / STOP)
    if present is None or not grace_s >= _grace(present):
        write_whole(folder / STOP, {"grace_s": grace_s})
    if revoke(folder):
        return True
    nudge(folder)
    return False


def _grace(request: dict[str, Any]) -> float:
    try:
        return float(request["grace_s"])
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"{STOP} is not ours: {error!r}") from error


def revoke(folder: Path) -> bool:
    """Make sure that no agent takes the attempt in `folder` up; False if one did."""
    fresh = folder / f".{CLAIM}.none.{os.getpid()}"
    write_whole(fresh, {"pid": 0, "began": -1})
    return put_claim(fresh, folder)


def nudge(folder: Path) -> None:
    """Make an agent look for requests at once; it would within half a second anyway."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(0.2)
        line.connect(short_path(folder / "agent.sock"))


def rank_logs(folder: Path) -> dict[int, Path]:
    """What each rank of the attempt in `folder` prints into."""
    logs = [(RANK_LOG.fullmatch(path.name), path) for path in folder.glob("rank-*.log")]
    return dict(sorted((int(match[1]), path) for match, path in logs if match))


def last_line(path: Path) -> str:
    """The last words in a file; empty if there are none."""
    try:
        lines = read_regular(path).decode(errors="replace").strip().splitlines()
    except (OSError, WireError):
        return ""
    return lines[-1][:300] if lines else ""
