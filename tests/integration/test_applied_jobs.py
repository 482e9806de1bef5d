"""Jobs that are applied to a cluster: one job for an object, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.integration.serving import FAST, STILL
from tests.waiting import LIMIT_S
from weft.app.serve.live import Settings
from weft.core.errors import EngineError
from weft.core.job_objects import JobObject
from weft.service.context import Context
from weft.service.jobs.applied_jobs import AppliedJobs, job_id
from weft.service.main import create_app


class Objects:
    """A cluster's objects in memory, with what was told of them."""

    def __init__(self, *objects: JobObject) -> None:
        self.there = {entry.uid: entry for entry in objects}
        self.events: list[tuple[str, str]] = []
        self.writes = 0
        self.away = False

    def all(self) -> Sequence[JobObject]:
        return list(self.there.values())

    async def claim(self, job: JobObject) -> None:
        self._change(job, claimed=True)

    async def release(self, job: JobObject) -> None:
        self._check()
        del self.there[job.uid]

    async def write(self, job: JobObject, status: Mapping[str, Any]) -> None:
        self._change(job, status=dict(status))
        self.writes += 1

    async def post_event(self, job: JobObject, reason: str, text: str, *, warning: bool) -> None:
        self._check()
        if (job.uid, reason) not in self.events:
            self.events.append((job.uid, reason))

    def change(self, uid: str, **fields: Any) -> None:
        self.there[uid] = replace(self.there[uid], **fields)

    def status(self, uid: str) -> dict[str, Any]:
        return dict(self.there[uid].status or {})

    def _change(self, job: JobObject, **fields: Any) -> None:
        self._check()
        self.change(job.uid, **fields)

    def _check(self) -> None:
        if self.away:
            raise EngineError("the server is away")


def applied(uid: str = "0b7c-11", **spec: Any) -> JobObject:
    return JobObject(uid, "vision", "net", "vision", {"command": ["true"], **spec}, "/tmp")


@asynccontextmanager
async def service_on(state: Path, engine: str = STILL) -> AsyncIterator[Context]:
    app = create_app(Settings(engine=engine, state=state, port=0))
    async with app.router.lifespan_context(app):
        yield app.state.context


async def poll(service: Context, objects: Objects, times: int = 3) -> None:
    """As one service does, which forgets all of it when it ends."""
    following = AppliedJobs(service, objects)
    for _ in range(times):
        await following.poll()


def test_an_object_is_one_job_of_its_tenant_after_restarts_too(tmp_path: Path) -> None:
    objects = Objects(applied())

    async def life() -> None:
        for _ in range(2):
            async with service_on(tmp_path) as service:
                await poll(service, objects)
                (status,) = service.driver.jobs()
                assert status.record.job.id == job_id(applied()) == "vision:net-0b7c11"
                assert status.record.job.tenant == "vision"
            objects.change(applied().uid, status=None)  # as if it had not been told

    asyncio.run(life())

    assert ("0b7c-11", "Submitted") in objects.events


def test_what_cannot_be_written_is_tried_again_and_submitted_once(tmp_path: Path) -> None:
    objects = Objects(applied())

    async def life() -> None:
        async with service_on(tmp_path) as service:
            following = AppliedJobs(service, objects)
            objects.away = True
            for _ in range(2):
                try:
                    await following.poll()
                except EngineError as error:
                    assert "away" in error.what
            assert service.driver.jobs() == []  # it is not ours before we have claimed it
            objects.away = False
            await poll(service, objects)
            assert len(service.driver.jobs()) == 1

    asyncio.run(life())

    assert objects.status("0b7c-11")["phase"] in ("Pending", "Starting", "Running")


def test_deletion_cancels_and_the_object_goes_when_the_job_has_left(tmp_path: Path) -> None:
    objects = Objects(applied(hints={"duration_s": 1e9}))

    async def life() -> None:
        async with service_on(tmp_path, FAST) as service:
            await poll(service, objects)
            objects.change("0b7c-11", deleted=True)
            following = AppliedJobs(service, objects)
            async with asyncio.timeout(LIMIT_S):
                while objects.there:
                    await following.poll()
                    await asyncio.sleep(0.01)
            (status,) = service.driver.jobs()
            assert status.state == "cancelled"
            assert not service.driver.ledger.jobs.leaving

    asyncio.run(life())


def test_a_refusal_names_the_field_and_is_no_job(tmp_path: Path) -> None:
    wrong = {"gpus": {"min": 3, "max": 2}}
    objects = Objects(applied("1-1", **wrong), applied("2-2", priority="guaranteed"))

    async def life() -> None:
        async with service_on(tmp_path) as service:
            await poll(service, objects)
            assert service.driver.jobs() == []

    asyncio.run(life())

    first, second = (objects.status(uid)["conditions"][0] for uid in ("1-1", "2-2"))
    assert (first["type"], first["status"], first["reason"]) == ("Accepted", "False", "InvalidSpec")
    assert first["message"] == "gpus: min 3 is above max 2"
    assert "for guaranteed jobs" in second["message"]
    assert objects.writes == 2


def test_a_job_that_the_log_does_not_know_is_not_submitted_again(tmp_path: Path) -> None:
    status = {"job": "vision:net-0b7c11", "phase": "Running"}
    objects = Objects(replace(applied(), claimed=True, status=status))

    async def life() -> None:
        async with service_on(tmp_path) as service:
            await poll(service, objects)
            assert service.driver.jobs() == []

    asyncio.run(life())

    assert objects.status("0b7c-11")["phase"] == "Lost"
