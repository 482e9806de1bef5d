"""`weft resume`: let suspended jobs go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.many_jobs import Jobs, Yes, do_to_all
from weft.cli.options import shared as o

if TYPE_CHECKING:
    from weft.cli.connect.client import Client


def resume(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Resume suspended jobs where they were, or from a checkpoint.

    A resumed job waits until there is room for it. Jobs that are not suspended stay as they are.
    """
    from weft.cli.connect.client import at
    from weft.service.responses.answers import Done

    def do(client: Client, job: str) -> str:
        return client.post(Done, at("jobs", job, "resume")).done

    do_to_all(jobs, "resume", "resumed", do, yes=yes, as_json=as_json)
