"""One attempt as seen from outside: its folder, its agent's log, and whether that agent lives."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.core.events import (
    Event,
    Failed,
    Finished,
    Noticed,
    Reported,
    Saved,
    Started,
    StartFailed,
    Stopped,
)
from weft.core.model import JobId
from weft.core.report import Report
from weft.wire.attempt import AGENT_LOG, CLAIM, EVENTS, STOP, TAG, read_json, write_whole
from weft.wire.processes import alive, kill_tagged

LOOK_S = 1.0  # between two looks whether an agent lives
CLAIM_S = 20.0  # how long an agent may take to come up
DYING_S = 10.0


@dataclass(slots=True)
class Watched:
    """An attempt whose end has not been told yet.

    `again` is for one that was watched before a restart: only the last of its reports is told.
    """

    job: JobId
    attempt: int
    folder: Path
    pid: int | None = None
    spawned: float = 0.0
    again: bool = False
    over: bool = False
    _offset: int = 0
    _rest: bytes = b""
    _looked: float = 0.0
    _ranks: dict[str, list[int]] | None = None

    # ---- news

    def news(self) -> Iterator[Event]:
        """What happened since the last call; after the last of it `over` is true."""
        yield from self._read()
        now = time.monotonic()
        if self.over or now - self._looked < LOOK_S:
            return
        self._looked = now
        claim = read_json(self.folder / CLAIM)
        if claim is None:
            yield from self._unclaimed(now)
        elif not alive(claim["pid"], claim["began"]):
            yield from self._read()  # it may have written its last line just before
            if not self.over:
                yield self._agent_died()

    def _read(self) -> Iterator[Event]:
        lines = self._lines()
        if self.again and lines:
            lines, self.again = thinned(lines), False
        for line in lines:
            event = self._told(line)
            if event is not None:
                yield event

    def _lines(self) -> list[dict[str, Any]]:
        try:
            with (self.folder / EVENTS).open("rb") as source:
                source.seek(self._offset)
                chunk = source.read()
        except FileNotFoundError:
            return []
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def _told(self, line: dict[str, Any]) -> Event | None:
        job, attempt = self.job, self.attempt
        match line["event"]:
            case "started":
                self._ranks = line["ranks"]
                return Started(job, attempt)
            case "report" if line["rank"] == 0:
                return Reported(job, attempt, Report.read(line["values"]))
            case "saved":
                return Saved(job, attempt, line["step"])
            case "notice":
                return Noticed(job, attempt, line["level"], line["text"])
            case "ended":
                self.over = True
                return self._ended(line["outcome"], line["reason"], line.get("lost", False))
        return None

    def _ended(self, outcome: str, reason: str, lost: bool) -> Event:
        if outcome == "finished":
            return Finished(self.job, self.attempt)
        if outcome == "stopped":
            return Stopped(self.job, self.attempt)
        return Failed(self.job, self.attempt, reason, lost=lost)

    # ---- when something went wrong

    def _unclaimed(self, now: float) -> Iterator[Event]:
        if not self._gone() and now - self.spawned < CLAIM_S:
            return
        if self.revoke():
            self.over = True
            why = f"its agent did not come up: {last_line(self.folder / AGENT_LOG)}"
            yield StartFailed(self.job, self.attempt, why, lost=True)

    def _gone(self) -> bool:
        """Whether the agent we started has ended, of its own accord or because another has it."""
        if self.pid is None:
            return False
        try:
            done, _ = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # seen to its end before
            return True
        return done != 0

    def _agent_died(self) -> Event:
        self.over = True
        self.clear()
        if (self.folder / STOP).exists():
            return Stopped(self.job, self.attempt)
        return Failed(self.job, self.attempt, "its agent died", lost=True)

    def clear(self) -> None:
        """End what a dead agent left behind, and wait until it is gone."""
        until = time.monotonic() + DYING_S
        ranks = [tuple(one) for one in (self._ranks or {}).values()]
        while time.monotonic() < until:
            left = [pid for pid, began in ranks if alive(pid, began)]
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            if not kill_tagged(TAG, str(self.folder)) and not left:
                return
            time.sleep(0.02)

    # ---- requests

    def hold(self, *, still: bool) -> None:
        """Make its processes stand still, or go on; of an attempt whose start has been told."""
        for pid, began in (self._ranks or {}).values():
            if alive(pid, began):
                os.killpg(pid, signal.SIGSTOP if still else signal.SIGCONT)

    def ask_to_stop(self, grace_s: float) -> bool:
        """Leave a request for the agent; True if none will ever come and all is over."""
        present = read_json(self.folder / STOP)
        if present is None or grace_s < present["grace_s"]:
            write_whole(self.folder / STOP, {"grace_s": grace_s})
        return self.revoke()

    def revoke(self) -> bool:
        """Claim the attempt so that no agent can; False if one has or had it."""
        return revoke(self.folder)


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without reports but the last."""
    reports = [i for i, line in enumerate(lines) if line["event"] == "report"]
    old = set(reports[:-1])
    return [line for i, line in enumerate(lines) if i not in old]


def revoke(folder: Path) -> bool:
    """Make sure that no agent takes the attempt in `folder` up; False if one did."""
    fresh = folder / f".{CLAIM}.none.{os.getpid()}"
    write_whole(fresh, {"pid": 0, "began": -1})
    try:
        os.link(fresh, folder / CLAIM)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def last_line(path: Path) -> str:
    """The last words in a file; empty if there are none."""
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1][:300] if lines else ""
