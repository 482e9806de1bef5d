"""Reads an agent's log bit by bit: lines, and the events that they tell about.

The job may have replaced these files: whatever is not as an agent writes it raises WireError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.base.errors import WireError
from weft.core.events.event import (
    Event,
    Failed,
    Finished,
    Measured,
    Noticed,
    Reported,
    Resizable,
    Resized,
    ResizeFailed,
    Saved,
    Stopped,
)
from weft.core.events.report import Report
from weft.core.model.job import JobId
from weft.wire.attempt import EVENTS
from weft.wire.shared_files import open_regular

AT_ONCE = 1 << 20  # bytes of a log that are read in one turn
LONGEST_LINE = 1 << 20
LONGEST_TEXT = 2_000
REPEATED = ("report", "saved", "health")  # each makes those before it old

AgentLine = dict[str, Any]


@dataclass(slots=True)
class AgentLog:
    """`events.jsonl` in `folder`; `more` says that it was not read to its end.

    `again` is for one that was read before a restart: of its reports and of its checkpoints only
    the last is reported.
    """

    folder: Path
    again: bool = False
    more: bool = False
    offset: int = 0
    _rest: bytes = b""
    _held: tuple[AgentLine, ...] = ()

    def events(self, read: Callable[[AgentLine], Iterable[Event]]) -> list[Event]:
        """The events that `read` makes of the lines since the last call.

        WireError for a line that no agent wrote; where it comes to an OSError, all is read again.
        """
        before = self.offset, self._rest, self.again, self._held
        try:
            return read_lines(self._read_again() if self.again else self._read(), read)
        except OSError:
            self.offset, self._rest, self.again, self._held = before
            raise

    def _read(self) -> list[AgentLine]:
        return [_parse(self.folder, line) for line in self._lines()]

    def _read_again(self) -> list[AgentLine]:
        """Of reports and of checkpoints the last alone, once it is read to its end."""
        lines = keep_latest([*self._held, *self._read()])
        held = [line for line in lines if self.more and line["event"] in REPEATED]
        self._held = tuple(held)
        left = [line for line in lines if line not in held]
        self.again = self.more or not left
        return left

    def _lines(self) -> list[bytes]:
        try:
            handle = open_regular(self.folder / EVENTS)
        except FileNotFoundError:
            if self.offset:
                raise WireError(f"{EVENTS} was removed") from None
            return []
        try:
            if os.fstat(handle).st_size < self.offset:
                raise WireError(f"{EVENTS} was cut short")
            chunk = os.pread(handle, AT_ONCE, self.offset)
        finally:
            os.close(handle)
        self.offset += len(chunk)
        self.more = len(chunk) == AT_ONCE
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise WireError(f"a line of {EVENTS} is longer than {LONGEST_LINE} bytes")
        return lines


def read_report(job: JobId, attempt: int, values: AgentLine) -> list[Event]:
    """A report as far as it can be right, and what is wrong with it."""
    report, wrong = Report.validate(values)
    events: list[Event] = [Reported(job, attempt, report)]
    if wrong:
        text = "; ".join(wrong)[:LONGEST_TEXT]
        events.append(Noticed(job, attempt, "warning", text, dropped=True))
    return events


def read_line(job: JobId, attempt: int, line: AgentLine) -> list[Event]:
    """Reports of the first rank, saved steps, and what a person is to read; nothing of the rest."""
    match line["event"]:
        case "report" if line["rank"] == 0:
            return read_report(job, attempt, line["values"])
        case "metrics":
            columns = (tuple(line["names"]), tuple(line["steps"]), tuple(line["values"]))
            return [Measured(job, attempt, float(line["noted_at"]), *columns)]
        case "saved":
            return [Saved(job, attempt, line["step"])]
        case "notice":
            level, text = str(line["level"])[:20], str(line["text"])[:LONGEST_TEXT]
            return [Noticed(job, attempt, level, text)]
    return []


def read_lines(
    lines: Iterable[AgentLine], read: Callable[[AgentLine], Iterable[Event]]
) -> list[Event]:
    """The events that `read` makes of these lines; WireError for a line that no agent wrote."""
    events: list[Event] = []
    for line in lines:
        try:
            events += read(line)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WireError(f"a line of {EVENTS} is not an agent's: {error!r}") from error
    return events


def read_resize(job: JobId, attempt: int, line: AgentLine) -> Event:
    """Read that its ranks can change as they train, or the result of a change."""
    if line["event"] == "resizable":
        return Resizable(job, attempt, float(line["state_gb"]))
    if line["event"] == "resized":
        took = (float(line["pause_s"]), float(line["prepare_s"]))
        return Resized(job, attempt, int(line["epoch"]), *took)
    return ResizeFailed(job, attempt, int(line["epoch"]), str(line["reason"])[:LONGEST_TEXT])


def read_end(job: JobId, attempt: int, line: AgentLine) -> Finished | Stopped | Failed:
    """The end of an attempt."""
    if line["outcome"] == "finished":
        return Finished(job, attempt)
    if line["outcome"] in ("stopped", "released"):
        return Stopped(job, attempt)
    code = line.get("code")
    return Failed(
        job,
        attempt,
        str(line["reason"])[:LONGEST_TEXT],
        lost=bool(line.get("lost")),
        code=None if code is None else int(code),
        final=bool(line.get("final")),
        out_of_memory=bool(line.get("out_of_memory")),
    )


def keep_latest(lines: list[AgentLine]) -> list[AgentLine]:
    """Drop all reports and checkpoints but the last of each."""
    latest = {line["event"]: i for i, line in enumerate(lines)}
    return [
        line
        for i, line in enumerate(lines)
        if line["event"] not in REPEATED or latest[line["event"]] == i
    ]


def _parse(folder: Path, line: bytes) -> AgentLine:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a line of {folder / EVENTS} is not JSON: {line[:60]!r}") from error
    if not isinstance(body, dict) or not isinstance(body.get("event"), str):
        raise WireError(f"a line of {folder / EVENTS} is no event: {line[:60]!r}")
    return body
