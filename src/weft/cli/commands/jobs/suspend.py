"""`weft suspend`: let jobs wait until somebody resumes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.many_jobs import Jobs, Yes, do_to_all
from weft.cli.options import shared as o

if TYPE_CHECKING:
    from weft.cli.connect.client import Client


def suspend(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Suspend jobs: running ones save, release their GPUs and wait; see `weft resume`.

    They keep what they have done and their place in the order of submission. What was done since
    the last checkpoint is lost, as when the scheduler preempts them.
    """
    from weft.cli.connect.client import at
    from weft.service.responses.answers import Done

    def do(client: Client, job: str) -> None:
        client.post(Done, at("jobs", job, "suspend"))

    do_to_all(jobs, "suspend", "suspended", do, yes=yes, as_json=as_json)
