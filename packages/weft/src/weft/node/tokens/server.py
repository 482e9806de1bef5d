"""The coordinator behind a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.base.tokens import FROM_COORDINATOR, Ask, FromMember, Inspect, Join, from_member
from weft.frozen import frozen
from weft.node.errors import NodeError
from weft.node.guard.identity import peer_of
from weft.node.tokens.coordinator import Coordinator, Out
from weft.node.tokens.members import Key
from weft.wire.attempt import ADJUST, SPEC, USER, AttemptSpec, job_folder, read_json

log = logging.getLogger(__name__)

MOST_UNREAD = 1 << 20  # bytes that are kept for a member that does not read
LONGEST_PATH = 107  # bytes that a Unix socket's address can hold


class TokenServer:
    """Reads members' lines, feeds the coordinator, writes what it answers.

    Another user than ours may join as jobs that run as him, by what is said below `state`. What is
    said there holds, too, for the tier, weight, phase and devices that a rank claims.
    """

    def __init__(self, coordinator: Coordinator, path: Path, state: Path | None = None) -> None:
        self._coordinator = coordinator
        self._path = path
        self._state = state
        self._writers: dict[Key, asyncio.StreamWriter] = {}
        self._gpus: dict[Key, frozenset[str]] = {}  # tokens of devices that members may ask for
        self._keys = itertools.count(1)
        self._changed = asyncio.Event()

    async def serve(self) -> None:
        """Until SIGTERM or SIGINT; the socket is removed at the end."""
        if len(str(self._path).encode()) > LONGEST_PATH:
            raise NodeError(
                f"the socket's path is longer than {LONGEST_PATH} bytes: {self._path}",
                hint="choose a shorter folder, such as one under /tmp",
            )
        if self._path.exists() and stat.S_ISSOCK(self._path.stat().st_mode):
            self._path.unlink()  # left by a coordinator that was killed
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        server = await asyncio.start_unix_server(self._member, str(self._path))
        self._path.chmod(0o666)  # the kernel says who connects
        timer = asyncio.create_task(self._timer())
        log.info("coordinator=%s ready", self._path)
        try:
            await ended.wait()
        finally:
            timer.cancel()
            server.close()
            for writer in self._writers.values():
                writer.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _member(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key, words = Key(next(self._keys)), from_member()
        uid = peer_of(writer.get_extra_info("socket")).uid
        self._writers[key] = writer
        try:
            while chunk := await reader.read(65_536):
                for message in words.feed(chunk):
                    self._check(uid, message)
                    allowed = self._allow(key, message)
                    self._send(self._coordinator.handle(time.monotonic(), key, allowed))
        except WireError as error:
            log.warning("member=%d hung up on: %s", key, error)
        except OSError as error:
            log.info("member=%d lost: %s", key, error)
        finally:
            del self._writers[key]
            self._gpus.pop(key, None)
            writer.close()
            self._send(self._coordinator.lost(time.monotonic(), key))

    def _check(self, uid: int, message: FromMember) -> None:
        """Raise WireError for what a member of this user may not say."""
        if uid == os.geteuid():
            return
        if isinstance(message, Inspect):
            raise WireError(f"user {uid} may not see the jobs of other users")
        if isinstance(message, Join) and uid != self._owner(message.job):
            raise WireError(f"job {message.job[:64]!r} does not run as user {uid}")

    def _allow(self, key: Key, message: FromMember) -> FromMember:
        """A member's message on the engine's terms; WireError for devices that are not its own."""
        if isinstance(message, Join) and self._state is not None:
            terms = read_terms(self._state, message.job)
            if terms is None:  # its claim is backed by its own word alone
                return replace(message, weight=1.0, phase=0.0)
            self._gpus[key] = frozenset(terms.gpus)
            return terms.of(message)
        if isinstance(message, Ask) and key in self._gpus:
            others = [t for t in message.tokens if t.startswith(GPU) and t not in self._gpus[key]]
            if others:
                raise WireError(f"{others[0][:64]} is not one of its devices")
        return message

    def _owner(self, job: str) -> int | None:
        user = read_json(job_folder(self._state, job) / USER) if self._state else None
        return None if user is None else int(user["uid"])

    def _send(self, out: Out) -> None:
        for key, message in out:
            if key not in self._writers:
                continue
            transport = self._writers[key].transport
            if transport.get_write_buffer_size() > MOST_UNREAD:
                transport.abort()  # it asks and does not read
            else:
                transport.write(FROM_COORDINATOR.encode(message))
        self._changed.set()

    async def _timer(self) -> None:
        """Tick when the coordinator wants it; whatever happens in between moves that time."""
        while True:
            self._changed.clear()
            now = time.monotonic()
            pause = self._coordinator.wake_at - now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(max(pause, 0.0), 3600.0))
            now = time.monotonic()
            if now >= self._coordinator.wake_at:
                self._send(self._coordinator.tick(now))


# ---- On what terms a job takes part: as the engine wrote them down, not as its ranks say


GPU = "gpu:"


@frozen
class TokenTerms:
    """Of one job on this node; `gpus` are the tokens of its devices."""

    tier: str
    weight: float
    phase: float
    gpus: tuple[str, ...]

    def of(self, join: Join) -> Join:
        """A member's request to join with these terms; it may name fewer devices than it has."""
        named = tuple(gpu for gpu in join.gpus if gpu in self.gpus)
        return replace(
            join, tier=self.tier, weight=self.weight, phase=self.phase, gpus=named or self.gpus
        )


def read_terms(state: Path, job: str) -> TokenTerms | None:
    """Return the terms of the job's last attempt and later changes; None where unknown."""
    folder = _last_attempt(job_folder(state, job))
    if folder is None:
        return None
    try:
        spec = AttemptSpec.read(folder / SPEC)
        since: dict[str, Any] = (read_json(folder / ADJUST) or {}).get("turns", {})
        return TokenTerms(
            str(since.get("tier", spec.turns.tier)),
            float(since.get("weight", spec.turns.weight)),
            float(since.get("phase", spec.turns.phase)),
            tuple(f"{GPU}{device}" for device in spec.devices),
        )
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise WireError(f"the terms of job {job[:64]!r} cannot be read: {error!r}") from error


def _last_attempt(folder: Path) -> Path | None:
    try:
        parts = {
            int(path.name): _described(path) for path in folder.iterdir() if path.name.isdigit()
        }
    except OSError:
        return None
    known = {number: part for number, part in parts.items() if part is not None}
    return known[max(known)] if known else None


def _described(attempt: Path) -> Path | None:
    """The file of an attempt's description: in its folder, or in that of its only part."""
    if (attempt / SPEC).exists():
        return attempt
    parts = [spec.parent for spec in attempt.glob(f"*/{SPEC}")]
    return parts[0] if len(parts) == 1 else None
