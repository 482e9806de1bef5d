"""`weft cancel`: cancel jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.many_jobs import NOTHING_DONE, Jobs, Yes, do_to_all
from weft.cli.options import shared as o

if TYPE_CHECKING:
    from weft.cli.connect.client import Client


def cancel(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Cancel jobs; running ones get their grace time to save.

    A sweep or app stands for all of its jobs. A pattern matches the ids and names of jobs that have
    not ended; the command asks before it cancels them.
    """
    from weft.cli.connect.client import at

    def do(client: Client, job: str) -> str:
        done = client.delete(at("jobs", job))
        return "" if done.changed else f"{NOTHING_DONE}{done.done}"

    do_to_all(jobs, "cancel", "cancelled", do, yes=yes, as_json=as_json)
