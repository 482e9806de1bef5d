"""Reading lists of jobs from the service, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.cli.connect.client import Client
from weft.service.responses.answers import JobAnswer, JobList

PAGE = 500
ACTIVE = ("running", "starting", "checkpointing", "preempted", "pending", "suspended")


def every_job(client: Client, **wanted: Any) -> Iterator[JobAnswer]:
    """All jobs that the query selects, in order of submission."""
    after = None
    while True:
        page = client.get(JobList, "/jobs", limit=PAGE, after=after, **wanted)
        yield from page.jobs
        after = page.next
        if after is None:
            return


def complete_sweeps(client: Client, jobs: list[JobAnswer]) -> list[JobAnswer]:
    """The jobs, and beside the first of each sweep or app all others of it."""
    apps = dict.fromkeys(job.app for job in jobs if job.app)
    whole = {app: list(every_job(client, app=app)) for app in apps}
    return [answer for job in jobs for answer in (whole.pop(job.app, ()) if job.app else (job,))]


def active_jobs(client: Client, **wanted: Any) -> list[JobAnswer]:
    """Jobs that have not ended, in order of submission; those that have are never read.

    States are asked about one after the other and back again, so that a job is seen that goes from
    one that is still to come to one that was asked about.
    """
    states = (*ACTIVE, *reversed(ACTIVE))
    answers = {job.id: job for state in states for job in every_job(client, state=state, **wanted)}
    return sorted(answers.values(), key=lambda job: job.submitted)
