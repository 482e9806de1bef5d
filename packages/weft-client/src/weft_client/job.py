"""Jobs and sweeps as objects: their state, output, results, and what is done to them."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from weft_client import cards
from weft_client.call import calls_folder, read_answer
from weft_client.connection import Connection, at
from weft_client.errors import JobCancelled, JobFailed, NoResult, Refused
from weft_client.fetching import fetch_files
from weft_client.steps import FIRST_S, Steps, longer, patient, patiently, poll_until, run

ENDED = ("succeeded", "failed", "cancelled")
LAST_LINES = 20
OUTPUT_S = 0.5  # between two looks at what a job prints, at most
PAGE = 500
RUN_CALL = "weft_client.run_call"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as the service described it last; `fields` is the whole answer of the API."""

    id: str
    name: str
    state: str
    reason: str
    attempt: int
    progress: float | None
    gpu_seconds: float
    parameters: Mapping[str, str]
    fields: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> JobStatus:
        """The status in one answer of the API."""
        own = ("id", "name", "state", "reason", "attempt", "progress", "gpu_seconds")
        parameters = fields.get("parameters") or {}
        return cls(**{name: fields[name] for name in own}, parameters=parameters, fields=fields)

    @property
    def ended(self) -> bool:
        """True if the job will not run again."""
        return self.state in ENDED

    @property
    def metrics(self) -> dict[str, float]:
        """The latest measurements: what its program reported, progress, steps, speed, memory."""
        own = {name: held["value"] for name, held in (self.fields.get("metrics") or {}).items()}
        measured = {**own, **(self.fields.get("measured") or {}), "progress": self.progress}
        more = ("goodput", "speed", "batch")
        measured |= {name: self.fields.get(name) for name in more}
        return {name: value for name, value in measured.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits or holds what it holds; `fields` is the whole answer of the API."""

    reason: str
    blocked_by: str
    start_s: float | None
    ahead: Sequence[Mapping[str, Any]]
    fields: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        """The reason, and when the job is likely to start."""
        later = "" if self.start_s is None else f"; likely to start in {self.start_s:.0f} s"
        return f"{self.reason}{later}"


class Job:
    """A job of the service. Its `id` is all that is kept; everything else is asked for."""

    def __init__(self, connection: Connection, job_id: str, folder: Path | None = None) -> None:
        self.id = job_id
        self._connection = connection
        self._folder = folder

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def _repr_html_(self) -> str:
        return cards.job_card(self.status())

    def status(self) -> JobStatus:
        """The job as it is now."""
        return JobStatus.of(self._connection.json("GET", at("jobs", self.id)))

    @property
    def state(self) -> str:
        """`pending`, `running`, ..., `succeeded`, `failed` or `cancelled`."""
        return self.status().state

    def wait(self, timeout: float | None = None) -> JobStatus:
        """The job once it has ended; TimeoutError after `timeout` seconds.

        A service that is away meanwhile is waited for: jobs go on without it.
        """
        return run(self.waiting(timeout))

    def waiting(self, timeout: float | None) -> Steps[JobStatus]:
        return poll_until(
            self.status,
            lambda status: status.ended,
            timeout,
            lambda status: f"job {self.id} is {status.state}",
        )

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the value of the job's function; None for a job that is a command.

        Raises what the function raised, JobFailed, JobCancelled, or TimeoutError.
        """
        return self.results(timeout)[0]

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait for the values of a function that runs on several ranks, in their order."""
        return self.values(self.wait(timeout))

    def values(self, status: JobStatus) -> list[Any]:
        """Return what the function returned on each rank, of a job that has ended in this way."""
        if status.state == "cancelled":
            raise JobCancelled(f"job {self.id} was cancelled")
        folder = self._folder or find_folder(status.fields.get("command") or ())
        if folder is None:
            if status.state == "failed":
                raise self._failure(status)
            return [None]
        if status.state == "failed":
            self._raise_answer(status, folder)
        ranks = range(max(1, len(list(folder.glob("result.*.pkl")))))
        return [read_answer(folder, rank).value for rank in ranks]

    def _raise_answer(self, status: JobStatus, folder: Path) -> None:
        """Raise what the function raised, with the traceback of the job."""
        try:
            answer = read_answer(folder)
        except NoResult as error:
            raise self._failure(status) from error
        if answer.error is None:
            raise self._failure(status)
        answer.error.add_note(f"in job {self.id}:\n{answer.trace}")
        raise answer.error

    def _failure(self, status: JobStatus) -> JobFailed:
        lines = patiently(self.output).splitlines()[-LAST_LINES:]
        printed = "".join(f"\n  {line}" for line in lines)
        return JobFailed(f"job {self.id} failed: {status.reason}{printed}")

    def output(self, rank: int = 0, attempt: int | None = None) -> str:
        """All that a rank of an attempt has printed so far; default: of the last attempt."""
        text = b""
        while part := self._part(rank, attempt, len(text)):
            text += part
        return text.decode(errors="replace")

    def logs(self, *, follow: bool = False, rank: int = 0) -> Iterator[str]:
        """The lines that a rank has printed, over all attempts.

        With `follow` they are waited for until the job has ended.
        """
        for step in self.printing(follow=follow, rank=rank):
            if isinstance(step, float):
                time.sleep(step)
            else:
                yield from step

    def printing(self, *, follow: bool, rank: int) -> Generator[float | list[str], None, None]:
        """`logs` in steps: seconds to sleep, or lines."""
        attempt, offset, rest, pause_s = 1, 0, b"", FIRST_S
        status = yield from patient(self.status)
        while True:
            part = b""
            if status.attempt:
                part = yield from patient(lambda: self._part(rank, attempt, offset))  # noqa: B023
            if part:
                offset, pause_s = offset + len(part), FIRST_S
                *lines, rest = (rest + part).split(b"\n")
                yield [line.decode(errors="replace") for line in lines]
            elif status.attempt > attempt:
                attempt, offset = attempt + 1, 0
            elif status.ended or not follow:
                break
            else:
                yield pause_s
                pause_s = min(longer(pause_s), OUTPUT_S)
                status = yield from patient(self.status)
        if rest:
            yield [rest.decode(errors="replace")]

    def _part(self, rank: int, attempt: int | None, offset: int) -> bytes:
        try:
            query = {"rank": rank, "attempt": attempt, "offset": offset}
            return self._connection.send("GET", at("jobs", self.id, "logs"), query=query)
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return b""  # it has not begun to write
            raise

    def explain(self) -> Explanation:
        """Why the job waits, or why it holds what it holds, and when it is likely to start."""
        fields = self._connection.json("GET", at("jobs", self.id, "explain"))
        start = fields.get("start") or {}
        return Explanation(
            reason=fields["reason"],
            blocked_by=fields["blocked_by"],
            start_s=start.get("p50"),
            ahead=fields["ahead"],
            fields=fields,
        )

    def metrics(self) -> dict[str, float]:
        """The latest measurements: what its program reported, progress, steps, speed, memory."""
        return self.status().metrics

    def curves(self) -> dict[str, list[tuple[float, float | None]]]:
        """Step and value of what the program reported, by metric; None: no finite number."""
        answer = self._connection.json("GET", at("jobs", self.id, "metrics"))
        return {
            curve["name"]: list(zip(curve["steps"], curve["values"], strict=True))
            for curve in answer["metrics"]
        }

    def events(self, limit: int = 500) -> list[dict[str, Any]]:
        """The latest events of the job, oldest first."""
        answer = self._connection.json("GET", at("jobs", self.id, "events"), query={"limit": limit})
        events: list[dict[str, Any]] = answer["events"]
        return events

    def artifacts(self) -> dict[str, int]:
        """Sizes of the files that the job left in the folder that its file names, by path."""
        answer = self._connection.json("GET", at("jobs", self.id, "artifacts"))
        return {file["path"]: file["size"] for file in answer["files"]}

    def fetch(self, path: str = "", to: str | os.PathLike[str] = ".") -> list[Path]:
        """Copy these files, or those below a path of theirs, into the folder `to`."""
        return fetch_files(self._connection, self.id, self.artifacts(), path, Path(to))

    def cancel(self) -> None:
        """End the job for good; one that has ended stays as it is."""
        patiently(lambda: self._connection.json("DELETE", at("jobs", self.id)))

    def suspend(self, *, restart: bool = False) -> None:
        """Let the job wait until it is resumed; with `restart` even if that loses its work."""
        self._connection.json("POST", at("jobs", self.id, "suspend"), {"restart": restart})

    def resume(self) -> None:
        """Let a suspended job run again when there is room."""
        self._connection.json("POST", at("jobs", self.id, "resume"))


class Sweep:
    """Several jobs that belong together: a sweep of a job file, or calls of one function."""

    def __init__(self, connection: Connection, sweep_id: str, jobs: Sequence[Job]) -> None:
        self.id = sweep_id
        self.jobs = list(jobs)
        self._connection = connection

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, {len(self.jobs)} jobs)"

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    def _repr_html_(self) -> str:
        return cards.sweep_card(self.id, self.statuses())

    def statuses(self) -> list[JobStatus]:
        return list(list_jobs(self._connection, app=self.id))

    def wait(self, timeout: float | None = None) -> list[JobStatus]:
        """All jobs once they have ended; TimeoutError after `timeout` seconds."""
        return run(self.waiting(timeout))

    def waiting(self, timeout: float | None) -> Steps[list[JobStatus]]:
        return poll_until(
            self.statuses,
            lambda jobs: all(job.ended for job in jobs),
            timeout,
            lambda jobs: f"{sum(not job.ended for job in jobs)} jobs of {self.id} run or wait",
        )

    def cancel(self) -> None:
        for job in self.jobs:
            job.cancel()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each job: its parameters, state, GPU time and what was measured."""
        return [
            {
                "job": each.id,
                **each.parameters,
                "state": each.state,
                "gpu_seconds": each.gpu_seconds,
                **each.metrics,
            }
            for each in self.statuses()
        ]

    def table(self) -> Any:
        """The rows as a pandas table where pandas is installed, else as a list."""
        rows = self.rows()
        try:
            import pandas as pd
        except ImportError:
            return rows
        return pd.DataFrame(rows)


def list_jobs(
    connection: Connection, after: str | None = None, **wanted: Any
) -> Iterator[JobStatus]:
    """All jobs that the query selects, in order of submission, from the one after `after` on."""
    while True:
        query = {**wanted, "limit": PAGE, "after": after}
        page = connection.json("GET", "/jobs", query=query)
        yield from map(JobStatus.of, page["jobs"])
        after = page["next"]
        if after is None:
            return


def find_folder(command: Sequence[str]) -> Path | None:
    """The folder of a call, where a job's command is one that this user's client wrote."""
    if len(command) < 2 or command[-2] != RUN_CALL:
        return None
    folder = Path(os.path.normpath(command[-1]))
    if folder.parent != calls_folder():
        raise NoResult(
            f"{folder} is not in {calls_folder()}, so its result is not read",
            hint="set WEFT_CALLS as it was when the job was submitted",
        )
    return folder
