"""What is known about a job when it is submitted, as a row of numbers: no end of later enters."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import log, log1p, nan
from typing import Any

from weft.core.model.job import Job
from weft.predict.published.past_ends import LATEST_S, gpus_of
from weft.predict.traits import group_of

KEPT = 50  # ends of each size, user and program
FEW, SOME = 5, 20
MOST_KEYS = 20_000

Row = tuple[float, ...]


class RecentEnds:
    """The last ends of each size, user and program, and when a size was last submitted."""

    def __init__(self) -> None:
        self._ends: dict[str, deque[float]] = {}  # logarithms of seconds, newest last
        self._submitted: dict[str, float] = {}

    def row(self, job: Job) -> Row:
        """GPUs, time, lengths of the last ends of all, its size, user and program; nan if none."""
        size, user, program = keys_of(job)
        when = datetime.fromtimestamp(min(max(job.submitted, 0.0), LATEST_S), UTC)
        gap_s = max(job.submitted - self._submitted.get(size, nan), 0.0)
        return (
            gpus_of(job),
            float(when.hour),
            float(when.weekday()),
            log1p(gap_s),
            *self._lengths(""),
            *self._lengths(size),
            *self._lengths(user),
            *self._lengths(program),
        )

    def count(self, job: Job) -> int:
        """Known ends of its program; 0 if there are none."""
        program = keys_of(job)[2]
        return len(self._ends.get(program, ())) if program else 0

    def note_submitted(self, job: Job) -> None:
        """Its size was submitted now."""
        self._submitted[keys_of(job)[0]] = job.submitted

    def add(self, job: Job, seconds: float) -> None:
        """One more end."""
        for key in ("", *keys_of(job)):
            ends = self._ends.pop(key, None) or deque(maxlen=KEPT)
            ends.append(log(max(seconds, 1.0)))
            self._ends[key] = ends  # the last that was touched
        while len(self._ends) > MOST_KEYS:
            del self._ends[next(iter(self._ends))]

    def save(self) -> Any:
        """As values that JSON has."""
        return [{key: [*ends] for key, ends in self._ends.items()}, self._submitted]

    def load(self, saved: Any) -> None:
        """Restore what `save` returned."""
        ends, submitted = saved
        self._ends = {str(key): deque(map(float, of), maxlen=KEPT) for key, of in ends.items()}
        self._submitted = {str(size): float(at) for size, at in submitted.items()}

    def _lengths(self, key: str) -> Iterator[float]:
        """The last, the mean of few and of all that are kept, and the longest of some."""
        ends: Sequence[float] = tuple(self._ends.get(key, ()))
        if not ends:
            yield from (nan, nan, nan, nan)
            return
        few = ends[-FEW:]
        yield from (ends[-1], sum(few) / len(few), sum(ends) / len(ends), max(ends[-SOME:]))


def keys_of(job: Job) -> tuple[str, str, str]:
    """Size, user and program, each with its name in front."""
    launch = job.launch
    program = group_of(launch) if launch is not None and launch.command else job.model or job.app
    return f"gpus {gpus_of(job):g}", f"user {job.owner}", program and f"program {program}"
