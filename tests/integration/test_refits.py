"""Models of predictors are fitted beside a live service, and replays take them from the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.waiting import LIMIT_S
from weft.app.serve import predicting as refits
from weft.app.serve.live import Live, Settings
from weft.core.events.event import Event, Refitted
from weft.core.knowledge.knowledge import Knowledge
from weft.core.model.job import Demand, Job, JobId
from weft.perf.linear import LinearBeliefs
from weft.runtime.deciding.replay import decide_again
from weft_papers.pai import group as pai_group

ENGINE = "simulated:cluster=1x4:a100,speed=3600"
JOBS = 60


def explode(*_: Any) -> Any:
    raise AssertionError("a model was fitted in the service")


async def run_service() -> list[tuple[int, float, Event]]:
    """The log of a service in which a model came, with jobs before and after it."""
    settings = Settings(engine=ENGINE, policy="srtf", predictor="pai-group", decide_in="service")
    live = Live(settings)
    await live.open()
    try:
        await submit(live, "a")
        async with asyncio.timeout(LIMIT_S):
            while not any(isinstance(event, Refitted) for _, _, event in live.store.since(0)):
                await asyncio.sleep(0.05)
        await submit(live, "b")
        return list(live.store.since(0))
    finally:
        await live.close()


async def submit(live: Live, name: str) -> None:
    for i in range(JOBS):
        length, user = (60.0, "ann") if i % 2 else (900.0, "bob")
        hints = {"duration_s": length}
        new = Job(JobId(f"{name}{i}"), demand=Demand(1 + i % 3), user=user, hints=hints)
        await live.driver.submit(new)
    async with asyncio.timeout(LIMIT_S):
        for i in range(JOBS):
            await live.driver.ended(JobId(f"{name}{i}"))


def test_no_decision_waits_for_a_fit_and_replays_decide_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pai_group, "grow", explode)  # here; not in the process beside
    monkeypatch.setattr(refits.Refits, "every_s", 0.05)
    log = asyncio.run(run_service())

    turns = decide_again(log, knowledge=Knowledge(pai_group.PaiGroup(), LinearBeliefs()))

    assert sum(turn.then is not None for turn in turns) > JOBS
    assert [turn for turn in turns if turn.then != turn.now] == []


def test_without_the_models_of_the_log_decisions_are_others() -> None:
    """So the test above would see a replay that has no model."""
    log = asyncio.run(run_service())
    without = [row for row in log if not isinstance(row[2], Refitted)]

    turns = decide_again(without, knowledge=Knowledge(pai_group.PaiGroup(), LinearBeliefs()))

    assert [turn for turn in turns if turn.then != turn.now] != []
