"""What the local engine sees of programs that say nothing."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.waiting import LIMIT_S
from weft.core.events.event import Event, Failed, Finished, Reported
from weft.core.knowledge.measured import NOT_MEASURED, MeasuredAttempt, Sees
from weft.core.model.job import Allocation, Demand, Job, JobId, Slice
from weft.core.model.launch import Launch
from weft.engines.local import LocalEngine
from weft.wire.attempt import MEASURED, folder_of

BAR = """
import time
from tqdm import tqdm
for _ in tqdm(range(60), mininterval=0.01): time.sleep(0.06)
"""
BUSY = "import time\nuntil = time.time() + 4\nwhile time.time() < until: pass"


def run(state: Path, code: str, *, watch: bool = True) -> tuple[list[Event], list[MeasuredAttempt]]:
    """One program to its end: what was told, and what was seen meanwhile."""
    return asyncio.run(_run(state, code, watch=watch))


async def _run(state: Path, code: str, *, watch: bool) -> tuple[list[Event], list[MeasuredAttempt]]:
    engine = LocalEngine(state, slots=1, cpu=True, warm=False)
    node = (await engine.nodes())[0]
    await engine.adopt([])
    launch = Launch((sys.executable, "-c", code), workdir="/", watch=watch)
    job = Job(JobId("plain"), demand=Demand(1), launch=launch)
    await engine.start(job, Allocation((Slice(node.id, (0,)),)), 1)
    events: list[Event] = []
    seen: list[MeasuredAttempt] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            looking = asyncio.create_task(_look(engine, seen))
            async for event in engine.events():
                events.append(event)
                if isinstance(event, (Finished, Failed)):
                    break
            looking.cancel()
    finally:
        seen.append(engine.measured(job.id, 1))
        await engine.close()
    return events, seen


async def _look(engine: LocalEngine, seen: list[MeasuredAttempt]) -> None:
    while True:
        seen.append(engine.measured(JobId("plain"), 1))
        await asyncio.sleep(0.25)


def test_the_speed_between_two_times_can_be_asked(tmp_path: Path) -> None:
    events, seen = run(tmp_path, BAR)

    assert isinstance(events[-1], Finished)
    last = seen[-1]
    assert (last.steps, last.unit, last.total_steps) == (60.0, "bar", 60.0)
    began, ended = last.samples[0][0], last.samples[-1][0]
    whole = 59.0 / (ended - began)
    assert last.rate(began, ended) == pytest.approx(whole, rel=0.1)
    (since, before), (until, after) = last.samples[5], last.samples[-5]
    assert last.rate(since, until) == pytest.approx((after - before) / (until - since))
    assert any(0 < (measurement.steps or 0) < 60 for measurement in seen)  # while it ran


def test_what_is_worth_remembering_is_reported(tmp_path: Path) -> None:
    events, _ = run(tmp_path, BAR)

    reports = [event.report for event in events if isinstance(event, Reported)]
    assert 1 <= len(reports) <= 5
    assert reports[-1].steps == 60.0
    assert reports[-1].progress == 1.0
    assert reports[-1].step_s is not None
    assert reports[-1].trains


def test_a_program_that_counts_nothing_is_seen_from_outside(tmp_path: Path) -> None:
    _, seen = run(tmp_path, BUSY)

    assert max(measurement.cpus or 0.0 for measurement in seen) > 0.1
    assert all(not measurement.samples for measurement in seen)


def test_who_does_not_want_to_be_watched_is_not(tmp_path: Path) -> None:
    code = "import sys; print('_weft_watch' in sys.modules)\n" + BAR

    _, seen = run(tmp_path / "job", code, watch=False)

    assert seen[-1].samples == ()


def test_an_engine_says_what_it_sees(tmp_path: Path) -> None:
    watching = LocalEngine(tmp_path, slots=1, cpu=True)
    blind = LocalEngine(tmp_path, slots=1, cpu=True, watch=False)

    assert watching.sees == Sees.STEPS | Sees.HOST
    assert blind.sees == Sees.HOST
    assert watching.measured(JobId("unknown"), 1) is NOT_MEASURED


def test_nonsense_in_the_place_of_measurements_is_not_believed(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path, slots=1, cpu=True)
    folder = folder_of(tmp_path, "spoilt", 1)
    folder.mkdir(parents=True)

    for text in ("", "[]", "{", '{"samples": [[1, 2], [0, 9]]}', '{"held_gb": NaN}'):
        (folder / MEASURED).write_text(text)
        assert engine.measured(JobId("spoilt"), 1) is NOT_MEASURED, text
