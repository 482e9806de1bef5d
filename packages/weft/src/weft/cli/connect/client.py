"""The commands' client of the service: a connection of `weft-client`, with answers as classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, ClassVar, TypeVar

from weft.cli.connect.duplex import CannotTalk, Talk
from weft.core.errors import EngineError, InvalidConfig, WeftError
from weft.service.responses.answers import Done, JobAnswer, JobList
from weft.service.responses.json_values import read_as
from weft_client.connection import Connection

T = TypeVar("T")


class ServiceUnreachable(InvalidConfig):
    """The service does not answer; `nobody` says that nothing listens at its address."""

    nobody = False


class Untrusted(InvalidConfig):
    """The server at that address cannot prove its identity."""


class RequestRefused(InvalidConfig):
    """The service will not do it; `status` is HTTP's, `field` the one that is wrong, if any."""

    status = 0
    field = ""
    retry_s = 0.0  # when to ask again; 0 where not stated


class ServiceClient(Connection):
    """The service's REST API. Paths are below `/api/v1`; `service/responses` has its answers."""

    unreachable: ClassVar[type[Any]] = ServiceUnreachable
    untrusted: ClassVar[type[Any]] = Untrusted
    refused: ClassVar[type[Any]] = RequestRefused
    failed: ClassVar[type[Any]] = EngineError
    misused: ClassVar[type[Any]] = InvalidConfig

    def get(self, kind: type[T], path: str, **query: Any) -> T:
        """Read; query values that are None are left out."""
        return read_as(kind, self.json("GET", path, None, query))

    def post(self, kind: type[T], path: str, body: Any = None) -> T:
        """Make or do."""
        return read_as(kind, self.json("POST", path, body))

    def put(self, kind: type[T], path: str, body: Any) -> T:
        return read_as(kind, self.json("PUT", path, body))

    def delete(self, path: str) -> Done:
        return read_as(Done, self.json("DELETE", path) or {"done": ""})

    def raw(self, path: str, **query: Any) -> bytes:
        """An answer that is not JSON: a log, a table as CSV."""
        return self.send("GET", path, None, query)

    def lines(self, kind: type[T], path: str, body: Any) -> Iterator[T]:
        """An answer that comes line by line; to stop reading it ends the work on it."""
        with self.open("POST", path, body, patience_s=None) as answer:
            for line in answer:
                yield read_as(kind, json.loads(line))

    def talk(self, path: str) -> Talk:
        """A request whose body and answer go on at the same time."""
        try:
            return Talk.begin(self.url, f"/api/v1{path}", self.token, self.trust)
        except CannotTalk as error:
            raise self.refusal(error.status, error.answer, "POST", path) from None
        except OSError as error:
            raise ServiceUnreachable(f"no service answers at {self.url} ({error})") from error

    def health(self, kind: type[T], path: str) -> T:
        """Return the service's report about itself, also while it is not well."""
        return read_as(kind, self.json("GET", path, api=False))

    def healthy(self) -> bool:
        """Return true if the service answers and is ready."""
        try:
            return bool(self.json("GET", "/healthz", api=False))
        except WeftError:
            return False


PAGE = 500
ACTIVE = ("running", "starting", "checkpointing", "preempted", "pending", "suspended")


def every_job(client: ServiceClient, **wanted: Any) -> Iterator[JobAnswer]:
    """All jobs that the query selects, in order of submission; `state` may name several."""
    try:
        yield from _every_page(client, **wanted)
    except RequestRefused as error:
        states = (wanted.get("state") or "").split(",")
        if error.field != "state" or len(states) == 1:
            raise
        lists = [_every_page(client, **{**wanted, "state": state}) for state in states]
        yield from sorted(chain(*lists), key=lambda job: job.submitted)  # 0.2.0 takes one state


def _every_page(client: ServiceClient, **wanted: Any) -> Iterator[JobAnswer]:
    after = None
    while True:
        page = client.get(JobList, "/jobs", limit=PAGE, after=after, **wanted)
        yield from page.jobs
        after = page.next
        if after is None:
            return


def complete_sweeps(client: ServiceClient, jobs: list[JobAnswer]) -> list[JobAnswer]:
    """The jobs, and beside the first of each sweep or app all others of it."""
    apps = dict.fromkeys(job.app for job in jobs if job.app)
    whole = {app: list(every_job(client, app=app)) for app in apps}
    return [answer for job in jobs for answer in (whole.pop(job.app, ()) if job.app else (job,))]


def active_jobs(client: ServiceClient, **wanted: Any) -> list[JobAnswer]:
    """Jobs that have not ended, in order of submission; those that have are never read."""
    return list(every_job(client, state=",".join(ACTIVE), **wanted))
