"""The node's stage-token coordinators: one for each discipline in use, started when needed.

A coordinator outlives the engine, as agents do, because running jobs talk to it; the next engine
finds it by pid and start time. One that died is started again: ranks run freely meanwhile.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from weft.engines.attempts.spawn import reap, spawn
from weft.engines.machine.job_environment import filter_environment
from weft.wire.attempt import read_json, short_path
from weft.wire.processes import alive

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Coordinators:
    """Those of one engine, below its folder `root`."""

    root: Path
    _used: set[str] = field(default_factory=set)
    _children: dict[str, int] = field(default_factory=dict)

    def socket(self, discipline: str) -> str:
        """Where the coordinator of `discipline` listens; it is started if it does not run."""
        self._used.add(discipline)
        self._ensure(discipline)
        return self._path(discipline)

    def look(self) -> None:
        """Start those again that have died."""
        self._children = {
            discipline: pid for discipline, pid in self._children.items() if not reap(pid)
        }
        for discipline in self._used:
            self._ensure(discipline)

    def end(self) -> None:
        """End all of them, also those of an engine before this one; for when no job is left."""
        for record in self.root.glob("tokens-*.json"):
            if (pid := _named_in(record)) is not None:
                terminate(pid)
        for pid in self._children.values():
            if not reap(pid):
                terminate(pid)
        self._used.clear()

    def pid(self, discipline: str) -> int | None:
        """The process of a coordinator that runs."""
        return _named_in(self._record(discipline))

    def _path(self, discipline: str) -> str:
        return short_path(self.root / f"tokens-{_word(discipline)}.sock")

    def _record(self, discipline: str) -> Path:
        return self.root / f"tokens-{_word(discipline)}.json"

    def _ensure(self, discipline: str) -> None:
        """Have one running; it writes its record itself, and a second one sees that and leaves."""
        if discipline in self._children or self.pid(discipline) is not None:
            return
        arguments = ["weft.node.tokens", self._path(discipline), "--discipline", discipline]
        arguments += ["--state", str(self.root), "--record", str(self._record(discipline))]
        log_file = self.root / f"tokens-{_word(discipline)}.log"
        pid = spawn(arguments, log_file, filter_environment())
        self._children[discipline] = pid
        log.info("coordinator=%s pid=%d started", discipline, pid)


def _named_in(record: Path) -> int | None:
    """The coordinator that wrote a record, if it runs."""
    body = read_json(record)
    if body is not None and alive(body["pid"], body["began"]):
        pid: int = body["pid"]
        return pid
    return None


def terminate(pid: int) -> None:
    """Ask a process to end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _word(discipline: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in discipline)
