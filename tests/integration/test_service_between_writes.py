"""What happened and is not on disk yet: every question is answered meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import LIMIT_S
from weft.app.serve.live import Settings
from weft.core.events.event import Cancelled
from weft.core.model.job import JobId
from weft.service.main import create_app

API = "/api/v1"
STILL = "simulated:cluster=1x4:a100,speed=1"
ENDLESS = {f"{API}/events", f"{API}/watch"}
HINTS = {"duration_s": 9999}
JOBS = ("running", "waiting")


def test_every_question_is_answered_while_the_end_of_jobs_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler knows that they ended, their records do not: nothing falls between the two."""

    async def life() -> dict[str, int]:
        app = create_app(Settings(engine=STILL, state=tmp_path))
        asked = questions(app.openapi())  # beforehand: while that is made, nothing else is done
        async with app.router.lifespan_context(app):
            live = app.state.context.live
            append, may_write = live.store.append, threading.Event()

            def append_late(noted: Any) -> int:
                # What happened before the end may be written only now; it is not held.
                if any(event == Cancelled(JobId(JOBS[-1])) for _, event in noted):
                    assert may_write.wait(LIMIT_S)
                return int(append(noted))

            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as by:
                for job in JOBS:
                    made = await by.post(f"{API}/jobs", json={"id": job, "gpus": 4, "hints": HINTS})
                    assert made.status_code == 201, made.text
                while live.driver.job("running").state != "running":
                    await asyncio.sleep(0.01)
                monkeypatch.setattr(live.store, "append", append_late)
                # Not by two requests: the scheduler might see the second after the first is held.
                ends = [asyncio.ensure_future(live.driver.cancel(JobId(job))) for job in JOBS]
                while "waiting" in live.driver.scheduler.state.table:
                    await asyncio.sleep(0.01)
                assert not live.driver.job("waiting").record.outcome
                answers = {where: (await by.get(where)).status_code for where in asked}
                may_write.set()
                await asyncio.gather(*ends)
                return answers

    answers = asyncio.run(life())

    assert len(answers) > 30
    assert {where: code for where, code in answers.items() if code >= 500} == {}
    assert answers[f"{API}/jobs/waiting"] == answers[f"{API}/jobs/running"] == 200


def questions(schema: dict[str, Any]) -> list[str]:
    """Everything that is read, about each of the jobs."""
    paths = [path for path, how in schema["paths"].items() if "get" in how and path not in ENDLESS]
    plain = [path for path in paths if "{" not in path]
    return plain + [path.replace("{job_id}", job) for path in paths for job in JOBS if "{" in path]
