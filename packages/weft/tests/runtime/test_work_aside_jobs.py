"""Work for a process aside: the jobs in it are sent once and kept while they are in the work."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from typing import Any

from weft.core.model.job import Demand, Job, JobId
from weft.runtime.aside.messages import Jobs, Report, WorkRequest, pack_work, read_work

JOBS = [Job(JobId(f"j{i}"), 0.0, Demand(1)) for i in range(200)]


def do(_jobs: list[Job], _report: Report) -> None:
    """What is asked for does not matter here."""


class Line:
    """Both sides, each with what it knows."""

    def __init__(self) -> None:
        self.here: Jobs = {}
        self.there: Jobs = {}
        self.size = 0

    def send(self, jobs: list[Job]) -> list[Job]:
        frame, self.here = pack_work(WorkRequest(partial(do, jobs), 1.0), self.here)
        self.size = len(frame)
        work, self.there = read_work(io.BytesIO(frame), self.there)
        call: Any = work.do
        read: list[Job] = call.args[0]
        return read


def test_what_was_in_the_last_work_is_not_sent_again() -> None:
    line = Line()

    first, whole = line.send(JOBS), line.size
    again = line.send(JOBS)

    assert first == again == JOBS
    assert all(before is other for before, other in zip(first, again, strict=True))
    assert line.size < whole / 4


def test_a_job_that_changed_is_sent_as_it_is() -> None:
    line = Line()
    line.send(JOBS)
    changed = [replace(JOBS[0], priority=1.0), *JOBS[1:]]

    assert line.send(changed) == changed


def test_jobs_that_left_are_forgotten_on_both_sides() -> None:
    line = Line()
    line.send(JOBS)
    line.send(JOBS[:3])

    assert [*line.here.values()] == [*line.there.values()] == JOBS[:3]
    assert line.send(JOBS) == JOBS
