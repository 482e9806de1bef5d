"""Reading lists of jobs from the service, page by page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from weft.cli.client import Client

PAGE = 500
ACTIVE = ("running", "starting", "checkpointing", "preempted", "pending", "unknown")

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
    """Jobs that have not ended, in order of submission; those that have are never read."""
    found = {job["id"]: job for state in ACTIVE for job in every_job(client, state=state, **wanted)}
    return sorted(found.values(), key=lambda job: float(job["submitted"]))


def cluster_now(cluster: dict[str, Any]) -> float:
    """The cluster's time; a simulated one may be ahead of the wall."""
    return float(cluster.get("now") or time.time())
