"""Our own event logs, as `weft simulate --events` writes them: the jobs of a run, to replay.

A job's length is the time it executed, as on the GPUs it asked for; of a job that had not ended
when the log was written it is a lower bound.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.core.codec.event_lines import read_event
from weft.core.errors import TraceError, WeftError
from weft.core.events.event import (
    Cancelled,
    Decided,
    Event,
    Failed,
    Finished,
    Started,
    Stopped,
    Submitted,
)
from weft.core.model.job import Job, JobId
from weft.core.model.trace import Truth
from weft.traces.draft import Format, Pair, TraceDraft
from weft.traces.options import Options
from weft.traces.source import FileSample, TraceFile, reading

FIRST = ("Submitted", "NodeUp", "PolicyChanged", "Decided", "Woken")


def is_events(sample: FileSample) -> bool:
    """A JSON object a line, each with a time and the name of an event."""
    if not sample.lines:
        return False
    try:
        record = json.loads(sample.lines[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and "at" in record and record.get("event") in FIRST


def load(files: Sequence[TraceFile], _: Options) -> TraceDraft:
    """The jobs of one or more logs, with the work they did."""
    draft = TraceDraft()
    for file in files:
        runs: dict[JobId, _Run] = {}
        last = 0.0
        with file.text() as lines, reading(file.path):
            for number, line in enumerate(lines, 1):
                draft.rows += 1
                last, event = _read(file.path, number, line)
                _note(runs, last, event)
        draft.pairs += (run.pair(last) for run in runs.values())
    return draft


FORMAT = Format("weft-events", "an event log of our own, by `--events`", is_events, load)


@dataclass(slots=True)
class _Run:
    """Facts of the log about one job so far."""

    job: Job
    gpu_s: float = 0.0
    gpus: float = 0.0
    since: float | None = None
    state: str = ""

    def pause(self, at: float) -> None:
        if self.since is not None:
            self.gpu_s += (at - self.since) * self.gpus
            self.since = None

    def resize(self, at: float, gpus: float) -> None:
        if self.since is not None:  # other terms while it runs
            self.pause(at)
            self.since = at
        self.gpus = gpus

    def pair(self, last: float) -> Pair:
        self.pause(last)
        demand = self.job.demand
        length = self.gpu_s / (demand.gpus * demand.share)
        truth = Truth(max(length, 1.0), state=self.state or "running", censored=not self.state)
        return replace(self.job), truth


def _read(path: str, number: int, line: str) -> tuple[float, Event]:
    try:
        return read_event(line)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, WeftError) as error:
        raise TraceError(
            f"{path}, line {number}: not an event: {error}",
            hint="the log was cut off, or written by a newer version",
        ) from error


def _note(runs: dict[JobId, _Run], at: float, event: Event) -> None:
    match event:
        case Submitted(job) if job.demand.gpus:  # others are no load of GPUs
            runs[job.id] = _Run(replace(job, submitted=at))
        case Decided(_, changes):
            for name, on in changes.items():
                if on is not None and name in runs:
                    runs[name].resize(at, on.counted_gpus)
        case Started(name) if name in runs:
            runs[name].since = at
        case Stopped(name) | Finished(name) | Failed(name) | Cancelled(name) if name in runs:
            runs[name].pause(at)
            runs[name].state = _end(event)


def _end(event: Event) -> str:
    """Return how the event ends its job; empty where it goes on later."""
    match event:
        case Finished():
            return "completed"
        case Cancelled():
            return "cancelled"
        case Failed(_, _, _, False):
            return "failed"
    return ""
