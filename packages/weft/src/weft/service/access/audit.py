"""The audit log: a line for every request that changes something, allowed or not.

Files are only appended to. Once one is long it is put aside under a number, and the oldest of
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
from dataclasses import asdict, fields
from heapq import merge
from itertools import islice, takewhile
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.frozen import frozen
from weft.service.access.tokens import ANYBODY, Caller
from weft.service.responses.admin import AuditEntry

log = logging.getLogger(__name__)

LONGEST = 16 << 20
KEPT = 8
IN_MEMORY = 10_000
REFUSED = 400
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
# Posted, but they change nothing; a client asks for batch jobs every second.
QUESTIONS = ("/plan", "/what-if", "/what-if/stream", "/job-file", "/batch-jobs/take")


@frozen
class AuditFilter:
    """A choice of entries: all of these hold; what is empty does not count."""

    since: float = 0.0
    until: float = float("inf")
    name: str = ""
    tenant: str = ""
    about: str = ""
    failed: bool = False

    def __call__(self, entry: AuditEntry) -> bool:
        return (
            self.since <= entry.at <= self.until
            and self.name in ("", entry.name, entry.token)
            and self.tenant in ("", entry.tenant)
            and (self.about in entry.path or self.about in entry.about)
            and (not self.failed or entry.status >= REFUSED)
        )


class AuditLog:
    """The entries in the file `path`, and of what was refused in one beside it.

    So refused requests, however many, do not push out what was done. None keeps the last in memory.
    """

    def __init__(self, path: Path | None, longest: int = LONGEST, kept: int = KEPT) -> None:
        if path is None:
            self._done: _Entries = _Memory(IN_MEMORY)
            self._refused: _Entries = _Memory(IN_MEMORY)
        else:
            refused = path.with_stem(f"{path.stem}-refused")
            self._done, self._refused = (_Files(file, longest, kept) for file in (path, refused))

    def record(self, entry: AuditEntry) -> None:
        """Append one; a disk that is full loses it, and that is logged."""
        (self._done if entry.status < REFUSED else self._refused).append(entry)

    def find(self, wanted: AuditFilter, limit: int) -> list[AuditEntry]:
        """The last `limit` entries that are wanted, oldest first."""
        kinds = (self._refused,) if wanted.failed else (self._done, self._refused)
        newest_first = merge(*map(reversed, kinds), key=lambda entry: -entry.at)
        until_then = takewhile(lambda entry: entry.at >= wanted.since, newest_first)
        return [*islice(filter(wanted, until_then), limit)][::-1]

    def close(self) -> None:
        self._done.close()
        self._refused.close()


class _Memory:
    def __init__(self, most: int) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=most)
        self.append = self._entries.append

    def __reversed__(self) -> Iterator[AuditEntry]:
        return reversed(self._entries)

    def close(self) -> None:
        """Nothing is open."""


class _Files:
    """Entries as lines of a file, which is put aside under a number once it is long."""

    def __init__(self, path: Path, longest: int, kept: int) -> None:
        self._path, self._longest, self._kept = path, longest, kept
        self._out = _open(path)
        self._torn = _ends_within_a_line(path)

    def append(self, entry: AuditEntry) -> None:
        line = json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n"
        try:
            self._turn_over(len(line))
        except OSError as error:
            log.warning("audit log %s is not put aside: %s", self._path, error)
        why = "only a part of it could be written"
        try:
            whole = b"\n" + line if self._torn else line
            self._torn = os.write(self._out, whole) < len(whole)
            lost = self._torn
        except OSError as error:
            lost, why = True, str(error)
        if lost:
            log.warning("audit entry lost: %s: %s", why, line.decode())

    def close(self) -> None:
        if self._out >= 0:
            os.close(self._out)
            self._out = -1

    def __reversed__(self) -> Iterator[AuditEntry]:
        files = [self._path, *(_aside(self._path, number) for number in range(1, self._kept + 1))]
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                yield from filter(None, map(_entry, reversed(file.read_bytes().splitlines())))

    def _turn_over(self, more: int) -> None:
        """Another file, where this one is too long or was put aside by someone else."""
        open_file = os.fstat(self._out)
        ours = self._path.exists() and os.path.samestat(open_file, self._path.stat())
        if ours and open_file.st_size + more <= self._longest:
            return
        new = self._path.with_name(f"{self._path.name}.new")
        out = _open(new)  # first: without another free descriptor it goes on with the old file
        if ours:
            for number in range(self._kept - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    _aside(self._path, number).replace(_aside(self._path, number + 1))
            self._path.replace(_aside(self._path, 1))
        new.replace(self._path)
        os.close(self._out)
        self._out, self._torn = out, False


_Entries = _Memory | _Files


class Audit:
    """Records requests as they are answered. It wraps everything else."""

    def __init__(self, app: ASGIApp, audit: AuditLog) -> None:
        self._app, self._audit = app, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


def _entry(line: bytes) -> AuditEntry | None:
    """The entry of a line; None of one that was cut off."""
    try:
        values = json.loads(line)
        return AuditEntry(**{field.name: values[field.name] for field in fields(AuditEntry)})
    except (ValueError, KeyError, TypeError):
        return None


def _ends_within_a_line(path: Path) -> bool:
    with path.open("rb") as lines:
        lines.seek(max(path.stat().st_size - 1, 0))
        return lines.read() not in (b"", b"\n")


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
