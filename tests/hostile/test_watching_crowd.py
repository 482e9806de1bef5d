"""A crowd that begins to watch at once costs what one of them costs, and keeps nobody waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weft.app.serve.live import Settings
from weft.core.model.job import Job, JobId
from weft.service.access.tokens import ANYBODY
from weft.service.main import create_app
from weft.service.streams import live_updates

JOBS, WATCHERS = 1_200, 40


def test_rows_are_described_once_however_many_come(monkeypatch: pytest.MonkeyPatch) -> None:
    described = 0
    usual = live_updates.row_of

    def count(*args: Any) -> Any:
        nonlocal described
        described += 1
        return usual(*args)

    monkeypatch.setattr(live_updates, "row_of", count)

    async def watch(context: Any) -> int:
        rows = 0
        source = context.live_updates.follow(ANYBODY)
        async for part in source:
            rows += part.count(b'"id":"j')
            if b"\nid: " in b"\n" + part:  # the last of a snapshot
                break
        await source.aclose()
        return rows

    async def life() -> tuple[list[int], int]:
        app = create_app(Settings(engine="simulated:cluster=2x4:a100,speed=0.001", policy="fifo"))
        async with app.router.lifespan_context(app):
            context = app.state.context
            jobs = [Job(JobId(f"j{i}"), hints={"duration_s": 1e9}) for i in range(JOBS)]
            await context.driver.submit(*jobs)
            watching = [asyncio.create_task(watch(context)) for _ in range(WATCHERS)]
            turns = 0
            while not all(task.done() for task in watching):
                turns += 1
                await asyncio.sleep(0)
            return [task.result() for task in watching], turns

    rows, turns = asyncio.run(life())

    assert rows == [JOBS] * WATCHERS
    assert described <= 2 * JOBS
    assert turns > WATCHERS  # others were let in
