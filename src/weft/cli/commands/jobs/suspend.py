"""`weft suspend`: let jobs wait until someone resumes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.cli.many_jobs import Jobs, Yes, agrees, do_to_all
from weft.cli.options import shared as o

if TYPE_CHECKING:
    from weft.cli.connect.client import Client


def suspend(jobs: Jobs, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Suspend jobs: running ones leave their GPUs and wait for `weft resume`.

    Where the engine can, a job is frozen or moved to host memory and later continues where it was;
    otherwise it saves and later continues from its last checkpoint. The command asks before it
    suspends a job that would lose all its work.
    """
    from weft.cli.connect.client import Refused, at
    from weft.service.responses.answers import Done

    def do(client: Client, job: str) -> str:
        path = at("jobs", job, "suspend")
        try:
            return client.post(Done, path).done
        except Refused as error:
            if error.field != "restart" or not (yes or agrees(error.what)):
                raise
        return client.post(Done, path, {"restart": True}).done

    do_to_all(jobs, "suspend", "suspended", do, yes=yes, as_json=as_json)
