"""The book behind a Unix socket: reads what the guards of processes say, and answers.

What jobs wait for is written into a file beside the socket, for the service to show.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import stat
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.node.guard.identity import peer_of
from weft.node.memory.book import Book, GiveWay, GoOn, Job, Key, MemoryLine, Out, Wait
from weft.node.memory.giving_way import GivingWay
from weft.wire.attempt import USER, folder_of, job_folder, read_json
from weft.wire.memory_waits import GUARDED, ORDER, WAITS, read_guarded, read_order

log = logging.getLogger(__name__)

LONGEST = 1_024  # bytes of a line
MOST_BYTES = 1 << 50
MOST_MEMBERS = 4_096
WRITE_EVERY_S = 0.5
ALONE_S = 60.0


class BookServer:
    """The book of the engine whose folder is `state`, behind the socket `path`.

    An engine touches `record` from time to time. Once none has for `alone_s`, and no process of a
    job is connected, it ends.
    """

    def __init__(
        self, path: Path, state: Path, record: Path | None = None, alone_s: float = ALONE_S
    ) -> None:
        self._path, self._state = path, state
        self._record, self._alone_s = record, alone_s
        self._giving_way = GivingWay(state)
        self.book = Book(self._giving_way.can_suspend)
        self._writers: dict[Key, asyncio.StreamWriter] = {}
        self._keys = itertools.count(1)
        self._changed = asyncio.Event()
        self._written: dict[str, str] = {}
        self._guarded = read_guarded(state) or set()  # what an earlier book knew
        self._order_at = 0

    async def serve(self) -> None:
        """Serve until SIGTERM or SIGINT, or until neither an engine nor a job needs it."""
        if self._path.exists() and stat.S_ISSOCK(self._path.stat().st_mode):
            self._path.unlink()  # left by one that was killed
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        server = await asyncio.start_unix_server(self._member, str(self._path), limit=LONGEST)
        self._path.chmod(0o666)  # the kernel says who connects
        tasks = [asyncio.create_task(self._tick()), asyncio.create_task(self._write_waits())]
        tasks.append(asyncio.create_task(self._end_alone(ended)))
        log.info("book=%s ready", self._path)
        try:
            await ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            server.close()
            for writer in self._writers.values():
                writer.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    # ---- members

    async def _member(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MOST_MEMBERS:
            writer.close()
            return
        key, peer = next(self._keys), peer_of(writer.get_extra_info("socket"))
        self._writers[key] = writer
        try:
            while line := await reader.readline():
                self._take(key, peer.pid, peer.uid, line.decode(errors="replace").rstrip("\n"))
        except (WireError, ValueError) as error:
            log.warning("member=%d hung up on: %s", key, error)
        except OSError as error:
            log.info("member=%d lost: %s", key, error)
        finally:
            del self._writers[key]
            writer.close()
            self._send(self.book.drop_member(time.monotonic(), key))

    def _take(self, key: Key, pid: int, uid: int, line: str) -> None:
        """One line; WireError or ValueError for what is none."""
        now, (word, _, rest) = time.monotonic(), line.partition(" ")
        self._read_order()  # what was left before this line counts for it
        if word == "hello" and key not in self.book.processes and key not in self.book.waits:
            job = self._job(rest, uid)
            self._guarded.add(job)
            out = self.book.add_process(now, key, job, pid)
        elif word == "held" and key in self.book.processes:
            device, size = rest.split(" ")
            out = self.book.hold(now, key, _device(device), _bytes(size))
        elif (
            word in ("want", "begin")
            and key not in self.book.processes
            and key not in self.book.waits
        ):
            device, size, free, total, rest = rest.split(" ", 4)
            attempt, priority, name = rest.split(" ", 2)
            job = self._job(f"{attempt} {name}", uid)
            wait = Wait(
                key,
                job,
                pid,
                _device(device),
                _bytes(size),
                _priority(priority),
                now,
                said_at=now,
                begins=word == "begin",
            )
            out = self.book.request_memory(now, key, wait, _bytes(free), _bytes(total))
        elif word in ("got", "no") and key in self.book.waits:
            out = self.book.record_try(now, key, got=word == "got", free=_bytes(rest))
        else:
            raise WireError(f"not expected: {line[:80]!r}")
        self._send(out)

    def _job(self, text: str, uid: int) -> Job:
        """A job and its attempt, if they are this user's."""
        attempt, _, job = text.partition(" ")
        if uid != os.geteuid():
            user = read_json(job_folder(self._state, job) / USER)
            if user is None or int(user["uid"]) != uid:
                raise WireError(f"job {job[:64]!r} does not run as user {uid}")
        return job, int(attempt)

    def _send(self, out: Out) -> None:
        for each in out:
            if isinstance(each, MemoryLine):
                if (writer := self._writers.get(each.to)) is not None:
                    writer.write(f"{each.text}\n".encode())
            elif isinstance(each, GiveWay):
                log.warning("job=%s gives way: all on its device wait for memory", each.job[0])
                self._giving_way.suspend(each.job)
            else:
                assert isinstance(each, GoOn)
                log.info("job=%s goes on", each.job[0])
                self._giving_way.wake(each.job)
        self._changed.set()

    # ---- time

    async def _tick(self) -> None:
        while True:
            self._changed.clear()
            pause_s = self.book.wake_s
            if pause_s is None:
                await self._changed.wait()
                continue
            await asyncio.sleep(pause_s)
            for job in self._giving_way.find_failed():
                self.book.forget_leaving(job)
            self._read_order()
            self._send(self.book.tick(time.monotonic()))

    async def _end_alone(self, ended: asyncio.Event) -> None:
        """End it once its engine is gone and no process of a job is left."""
        while self._record is not None:
            await asyncio.sleep(self._alone_s / 4)
            if not self._writers and _age_s(self._record) > self._alone_s:
                log.info("book=%s no engine and no job is left", self._path)
                ended.set()

    def _read_order(self) -> None:
        """Take up the policy's order, where the service has left another one."""
        with contextlib.suppress(FileNotFoundError):
            left_at = (self._state / ORDER).stat().st_mtime_ns
            if left_at != self._order_at:
                self._order_at, self.book.order = left_at, read_order(self._state)

    async def _write_waits(self) -> None:
        """Write the waits and who is guarded into files for the service, when they change."""
        while True:
            self._write(WAITS, [*self._describe()])
            self._guarded = {*filter(self._lives, self._guarded)}
            self._write(GUARDED, sorted(self._guarded))
            await asyncio.sleep(WRITE_EVERY_S)

    def _write(self, name: str, rows: list[Any]) -> None:
        """Write a file beside the socket, if it is not so already."""
        text = json.dumps(rows)
        if text != self._written.get(name):
            fresh = self._state / f".{name}.{os.getpid()}"
            fresh.write_text(text)
            fresh.replace(self._state / name)
            self._written[name] = text

    def _lives(self, job: Job) -> bool:
        """True for an attempt that may run: its engine has marked it, or a process is there."""
        folder = folder_of(self._state, *job)
        marked = (self._state / "live" / f"{folder.parent.name}@{folder.name}").exists()
        return marked or any(own.job == job for own in self.book.processes.values())

    def _describe(self) -> Iterator[dict[str, object]]:
        skew = time.time() - time.monotonic()
        for wait in self.book.waits.values():
            held = self.book.held_bytes(wait.device)
            yield {
                "job": wait.job[0],
                "attempt": wait.job[1],
                "gb": round(wait.size / 1e9, 3),
                "since": round(wait.since + skew, 1),
                "away": wait.job in self.book.devices[wait.device].away,
                "missing": round(self.book.missing_bytes(wait) / 1e9, 3),
                "held": {job: round(size / 1e9, 3) for (job, _), size in held.items()},
            }


def _age_s(path: Path) -> float:
    """Seconds since a file was touched; infinite where it is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return inf


def _device(text: str) -> str:
    if len(text) != 32 or not text.isalnum():
        raise WireError(f"{text[:40]!r} is no device")
    return text


def _bytes(text: str) -> int:
    size = int(text)
    if not 0 <= size <= MOST_BYTES:
        raise WireError(f"{text[:40]} bytes are not possible")
    return size


def _priority(text: str) -> float:
    value = float(text)
    if not abs(value) < 1e12:
        raise WireError(f"{text[:40]} is no priority")
    return value
