"""An agent as seen from outside: whether it lives, requests to it, and its processes' end.

Everything here touches files that the job may have replaced: it belongs off the event loop, and
whatever is not as an agent writes it raises WireError.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.engines.attempts.own_processes import reap
from weft.frozen import frozen
from weft.wire.attempt import (
    AGENT_LOG,
    CLAIM,
    EVENTS,
    STOP,
    TAG,
    put_claim,
    read_json,
    short_path,
    write_whole,
)
from weft.wire.cgroups import kill_group, members, remove_group
from weft.wire.processes import (
    alive,
    descendants,
    find_holding,
    find_tagged,
    is_frozen,
    kill_all,
    start_time,
)
from weft.wire.shared_files import read_regular

PAUSE_S = 0.02

Process = tuple[int, int]  # pid and start time


@frozen
class Footprint:
    """All that tells an attempt's processes from others.

    `lock` is the file that they inherit open; None where another attempt of the job may hold it.
    """

    folder: Path
    agent: Process | None = None
    ranks: tuple[Process, ...] = ()
    lock: Path | None = None
    group: Path | None = None


def end_all(marks: Footprint, within_s: float) -> list[int]:
    """Kill until none is left or the time is up; those that are left."""
    until = time.monotonic() + within_s
    while True:
        left = processes_of(marks)
        if not left:
            if marks.group is not None:
                remove_group(marks.group)
            return []
        if marks.group is not None:
            kill_group(marks.group)
        kill_all(left)
        if time.monotonic() > until:
            return sorted(left)
        time.sleep(PAUSE_S)


def processes_of(marks: Footprint) -> set[int]:
    """Every process of the attempt that lives."""
    roots = [
        process
        for process in (marks.agent, *marks.ranks)
        if process is not None and alive(*process)
    ]
    pids = {pid for pid, _ in roots}
    for pid, _ in roots:
        # An agent adopts orphans, so that no process escapes it while it lives.
        pids |= set(descendants(pid))
    pids |= set(find_tagged(TAG, str(marks.folder)))
    # A rank that its agent has forked but that has not begun yet has no mark of its own.
    pids |= set(find_holding(marks.folder / EVENTS, writing=True))
    if marks.lock is not None:
        pids |= set(find_holding(marks.lock))
    if marks.group is not None:
        pids |= set(members(marks.group))
    pids.discard(os.getpid())
    return {pid for pid in pids if start_time(pid) is not None}


LOOK_S = 1.0  # between two looks whether an agent lives
CLAIM_S = 20.0  # how long an agent may take to come up
STARTING_S = 60.0  # how long an agent may then take to start its ranks
FROZEN_S = 8.0  # how long an agent may stand still before its attempt is given up
RANK_LOG = re.compile(r"rank-(\d{1,7})\.log")


@dataclass(slots=True)
class AgentProcess:
    """The agent of the attempt in `folder`, a process of this machine: the one that has claimed it.

    `pid` is a child that was started to be it, `spawned` when; `group` is the control group of the
    attempt. `doomed` says that it is being ended, with all that it started.
    """

    folder: Path
    spawned: float
    pid: int | None = None
    group: Path | None = None
    doomed: float = inf
    claim: Process | None = None
    _looked: float = -inf
    _frozen: float = inf
    _seen: float = inf

    def poll(self, now: float, *, started: bool, written: bool) -> str:
        """The reason why it is given up, if it is time to look; empty while it lives.

        `started` and `written` are what its log says. WireError where its folder is not as an agent
        leaves it.
        """
        if now - self._looked < LOOK_S:
            return ""
        claim = self._find_claim(written=written)
        if claim is None:
            why = self._look_for_claim(now)
        elif not alive(*claim):
            why = ": ".join(filter(None, ("its agent died", last_line(self.folder / AGENT_LOG))))
        else:
            why = self._look_at_process(claim[0], now, started=started)
        self._looked = now
        return why

    def check_gone(self) -> None:
        """WireError if it runs on with processes of the attempt, whatever its log says."""
        agent = self.claim or self._find_claim(written=True)
        if agent is not None and alive(*agent) and descendants(agent[0]):
            raise WireError(f"{EVENTS} says that it ended, but it runs")

    def _find_claim(self, *, written: bool) -> Process | None:
        """The process that runs the attempt; WireError if it had one that is gone."""
        body = read_json(self.folder / CLAIM)
        if body is None:
            if self.claim is not None or written:
                raise WireError(f"{CLAIM} was removed")
            return None
        try:
            self.claim = int(body["pid"]), int(body["began"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"{CLAIM} is not an agent's: {error!r}") from error
        return self.claim

    def _look_for_claim(self, now: float) -> str:
        if not self._has_exited() and now - self.spawned < CLAIM_S:
            return ""
        if not revoke(self.folder):
            return ""
        return f"its agent did not come up: {last_line(self.folder / AGENT_LOG)}"

    def _has_exited(self) -> bool:
        """True if the agent we started has ended, of its own accord or because another has it."""
        return self.pid is not None and reap(self.pid)

    def _look_at_process(self, pid: int, now: float, *, started: bool) -> str:
        """An agent that stands still is asked to go on, then given up."""
        self._seen = min(self._seen, now)
        if not started and now - self._seen > STARTING_S:
            raise WireError(f"its agent runs, and {EVENTS} does not say that it started")
        if not is_frozen(pid):
            self._frozen = inf
        elif self._frozen == inf:
            self._frozen = now
            os.kill(pid, signal.SIGCONT)
        elif now - self._frozen > FROZEN_S:
            return "its agent was stopped by a signal"
        return ""


def ask_to_stop(folder: Path, grace_s: float) -> bool:
    """Ask an agent to end its ranks within `grace_s`, unless it was asked to sooner.

    True if no agent has the attempt in `folder`, and none ever will.
    """
    present = read_json(folder / STOP)
    if present is None or not grace_s >= _grace(present):
        write_whole(folder / STOP, {"grace_s": grace_s})
    if revoke(folder):
        return True
    wake_agent(folder)
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


def wake_agent(folder: Path) -> None:
    """Make an agent look for requests at once; it would within half a second anyway."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(0.2)
        line.connect(short_path(folder / "agent.sock"))


def rank_logs(folder: Path) -> dict[int, Path]:
    """The file that each rank of the attempt in `folder` prints into."""
    logs = [(RANK_LOG.fullmatch(path.name), path) for path in folder.glob("rank-*.log")]
    return dict(sorted((int(match[1]), path) for match, path in logs if match))


def last_line(path: Path) -> str:
    """The last words in a file; empty if there are none."""
    try:
        lines = read_regular(path).decode(errors="replace").strip().splitlines()
    except (OSError, WireError):
        return ""
    return lines[-1][:300] if lines else ""
