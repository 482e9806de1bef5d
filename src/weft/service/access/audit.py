"""Who did what: a line for every request that changes something, allowed or not.

The file is only appended to. Once it is long it is put aside under a number, and the oldest of
those goes. What was asked is not in it, since bodies hold secrets: only what it was about.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.service.access.tokens import ANYBODY, Caller
from weft.service.responses.admin import AuditEntry

log = logging.getLogger(__name__)

LONGEST = 16 << 20
KEPT = 8
IN_MEMORY = 10_000
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
QUESTIONS = ("/plan", "/what-if", "/what-if/stream", "/job-file")  # posted, but they change nothing


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries: all of these hold; what is empty does not count."""

    since: float = 0.0
    until: float = float("inf")
    name: str = ""
    tenant: str = ""
    about: str = ""
    failed: bool = False

    def __call__(self, entry: AuditEntry) -> bool:
        """Whether an entry is one of them."""
        return (
            self.since <= entry.at <= self.until
            and self.name in ("", entry.name, entry.token)
            and self.tenant in ("", entry.tenant)
            and (self.about in entry.path or self.about in entry.about)
            and (not self.failed or entry.status >= 400)
        )


class AuditLog:
    """The entries in the file `path`; None keeps the last in memory."""

    def __init__(self, path: Path | None, longest: int = LONGEST, kept: int = KEPT) -> None:
        self._path, self._longest, self._kept = path, longest, kept
        self._memory: deque[AuditEntry] = deque(maxlen=IN_MEMORY)
        self._out = -1 if path is None else _open(path)

    def record(self, entry: AuditEntry) -> None:
        """Append one; a disk that is full loses it, and that is logged."""
        if self._path is None:
            self._memory.append(entry)
            return
        line = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        try:
            if os.fstat(self._out).st_size + len(line) > self._longest:
                self._put_aside(self._path)
            os.write(self._out, line)
        except OSError as error:
            log.warning("audit entry lost: %s: %s", error, line.decode())

    def find(self, wanted: Wanted, limit: int) -> list[AuditEntry]:
        """The last `limit` entries that are wanted, oldest first."""
        entries: list[AuditEntry] = []
        for entry in self._backwards():
            if entry.at < wanted.since or len(entries) == limit:
                break
            if wanted(entry):
                entries.append(entry)
        return entries[::-1]

    def close(self) -> None:
        """No more is recorded."""
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def _put_aside(self, path: Path) -> None:
        for number in range(self._kept - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                _aside(path, number).replace(_aside(path, number + 1))
        path.replace(_aside(path, 1))
        os.close(self._out)
        self._out = _open(path)

    def _backwards(self) -> Iterator[AuditEntry]:
        if self._path is None:
            yield from reversed(self._memory)
            return
        files = [self._path, *(_aside(self._path, number) for number in range(1, self._kept + 1))]
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                yield from map(_entry, reversed(file.read_bytes().splitlines()))


class Audit:
    """Records requests as they are answered. It wraps everything else."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self._app, self._audit = app, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if not _changes(scope):
            await self._app(scope, receive, send)
            return
        status = 500

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, receive, seen)
        finally:
            self._audit.record(_make(scope, status))


def _changes(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] in CHANGING
        and not scope["path"].endswith(QUESTIONS)
    )


def _make(scope: Scope, status: int) -> AuditEntry:
    state = scope["state"]
    who: Caller = state.get("caller") or ANYBODY
    known = "caller" in state
    address = scope["client"][0] if scope.get("client") else ""
    return AuditEntry(
        at=time.time(),
        token=who.token,
        name=who.name,
        role=who.role if known else "",
        tenant=who.tenant if known else "",
        address=address,
        method=scope["method"],
        path=scope["path"][:300],
        about=state.get("about", ""),
        status=status,
    )


def _entry(line: bytes) -> AuditEntry:
    values = json.loads(line)
    return AuditEntry(**{field.name: values[field.name] for field in fields(AuditEntry)})


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
