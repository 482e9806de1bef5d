"""Following a job: its output as it grows, over attempts and over restarts of the service."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeVar

from weft.cli.connect.client import RequestRefused, ServiceClient, ServiceUnreachable
from weft.cli.view import words
from weft.cli.view.words import ENDED
from weft.service.responses.answers import JobAnswer
from weft_client.connection import at

POLL_S = 0.3
PATIENCE_S = 120.0  # a service that restarts is back sooner; jobs go on meanwhile

AWAY = "the service does not answer; waiting for it, jobs keep running"

T = TypeVar("T")


@dataclass(slots=True)
class Follower:
    """One job's output, passed to `write` as bytes, and its state changes, passed to `note`.

    `mark` is called for each attempt before its output, if there is more than one.
    """

    client: ServiceClient
    job: str
    write: Callable[[bytes], None]
    note: Callable[[str], None]
    rank: int = 0
    attempt: int | None = None
    mark: Callable[[int], None] = lambda _: None
    _marked: int = 0
    _first: bool = True
    _last: bytes = b""
    _offset: int = 0
    _shown: str = ""
    _noticed: float = 0.0

    def until_the_end(self) -> JobAnswer:
        """Follow until the job has ended; the job as it then is."""
        while True:
            job = self._poll()
            grew = self.catch_up(job.attempt)
            if job.state in ENDED:
                return job
            if not grew:
                time.sleep(POLL_S)

    def until_ended(self, by: float) -> JobAnswer | None:
        """Wait without its output; the job as it ended, or None once time.monotonic() is `by`."""
        while (job := self._poll()).state not in ENDED:
            if time.monotonic() >= by:
                return None
            time.sleep(POLL_S)
        return job

    def catch_up(self, attempt: int) -> bool:
        """Write all there is up to this attempt; whether there was anything new."""
        if self.attempt is None:
            self.attempt = attempt
        grew = False
        while True:
            grew |= self._drain(self.attempt, several=attempt > self.attempt or not self._first)
            if self.attempt >= attempt:
                return grew
            self.attempt, self._offset, self._first = self.attempt + 1, 0, False

    def _drain(self, attempt: int, *, several: bool) -> bool:
        if attempt < 1:
            return False
        start = self._offset
        while chunk := self._patiently(lambda: self._chunk(attempt)):
            if several and self._marked != attempt and not self._offset:
                self._marked = attempt
                if self._last not in b"\n":
                    self.write(b"\n")  # a line that the attempt before did not finish
                self.mark(attempt)
            self.write(chunk)
            self._last = chunk[-1:]
            self._offset += len(chunk)
        return self._offset > start

    def _chunk(self, attempt: int) -> bytes:
        try:
            return self.client.raw(
                at("jobs", self.job, "logs"), rank=self.rank, attempt=attempt, offset=self._offset
            )
        except RequestRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return b""  # it has not begun to write
            raise

    def _poll(self) -> JobAnswer:
        job = self._patiently(lambda: self.client.get(JobAnswer, at("jobs", self.job)))
        self._say(state_line(job))
        for notice in job.notices:
            if notice.at > self._noticed:
                self._noticed = notice.at
                self.note(f"{notice.level}: {notice.text}")
        return job

    def _say(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            self.note(text)

    def _patiently(self, ask: Callable[[], T]) -> T:
        began = time.monotonic()
        while True:
            try:
                return ask()
            except ServiceUnreachable:
                if time.monotonic() - began > PATIENCE_S:
                    raise
                self._say(AWAY)
                time.sleep(POLL_S)


def state_line(job: JobAnswer) -> str:
    """Say in one line where a job stands."""
    text = str(job.state)
    if held := words.gpus(job.allocation):
        text += f" on {held} ({words.where(job.allocation)})"
    if job.state not in ("running", "succeeded") and job.reason:
        text += f": {words.plain(job.reason)}"
    return text


def exit_code(job: JobAnswer) -> int:
    """Return the exit code for a shell: the command's own where it is known."""
    if job.state == "succeeded":
        return 0
    if job.state == "cancelled":
        return 130
    match = re.search(r"\bexit code (\d+)", job.reason)
    return (int(match[1]) if match else 1) or 1
