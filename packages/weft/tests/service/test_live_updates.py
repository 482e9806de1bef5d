"""Clients that watch many jobs: what their rows cost."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from weft.app.serve.live import Live, Settings
from weft.core.model.job import Demand, Job, JobId
from weft.runtime.loop.driver import Driver
from weft.service.access.tokens import EVERY, Caller
from weft.service.jobs.job_view import JobView
from weft.service.streams import live_updates

JOBS = 60


def test_what_all_rows_share_is_not_counted_again_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views = []

    class Counted(JobView):
        def __init__(self, driver: Driver) -> None:
            super().__init__(driver)
            views.append(self)

    monkeypatch.setattr(live_updates, "JobView", Counted)
    monkeypatch.setattr(live_updates, "AT_ONCE_S", 0.0)  # others are let in after every row
    monkeypatch.setattr(live_updates, "SOON_S", 600.0)

    asyncio.run(_watch_all())

    assert len(views) <= 3  # not one for each job


async def _watch_all() -> None:
    live = Live(Settings("simulated:cluster=1x8:a100,speed=1", policy="fifo", decide_in="service"))
    await live.open()
    hints = {"duration_s": 1e6}
    jobs = [Job(JobId(f"j{i}"), demand=Demand(1), hints=hints) for i in range(JOBS)]
    await live.driver.submit(*jobs)
    updates = live_updates.LiveUpdates(live)
    async with aclosing(updates.follow(Caller("admin", EVERY))) as messages:
        text = await anext(messages)
    await live.close()
    assert text.count(b'"state":') >= JOBS
