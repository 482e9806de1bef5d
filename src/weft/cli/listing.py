"""Reading lists of jobs from the service, page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from weft.cli.client import Client
from weft.cli.words import ENDED

PAGE = 500
UNENDED = ("pending", "starting", "running", "checkpointing", "preempted", "unknown")

Job = dict[str, Any]


def every_job(client: Client, **wanted: Any) -> Iterator[Job]:
    """All jobs that the query selects, in order of submission."""
    after = None
    while True:
        answer = client.get("/jobs", limit=PAGE, after=after, **wanted)
        yield from answer["jobs"]
        after = answer.get("next")
        if after is None:
            return


def active_jobs(client: Client, **wanted: Any) -> list[Job]:
    """Jobs that have not ended, in order of submission."""
    return [job for job in every_job(client, **wanted) if job["state"] not in ENDED]


def cluster_now(cluster: dict[str, Any]) -> float:
    """The cluster's time; a simulated one may be ahead of the wall."""
    return float(cluster.get("now") or time.time())
