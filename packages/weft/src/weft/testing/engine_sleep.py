"""Freezing, for engines that declare it: all ranks stand still, and nothing is left frozen.

Engines without `Rung.FREEZE` among their `stops` are skipped.
"""

from __future__ import annotations

import asyncio

from weft.core.events.event import Started, Stopped
from weft.core.model.job import Allocation, Job
from weft.core.stops import PLAN, PROBE, Rung
from weft.testing.engine_subject import EngineSession, Script, Subject, by_script, read_all, session

COUNT = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.05; done"
STILL_S = 1.0  # for what was printed before to be read, and again for nothing more to come
ENOUGH = 5  # lines


@by_script
async def a_gang_is_frozen_whole(subject: Subject, script: Script) -> None:
    """Every rank stands still until all that froze it let go; then it stops as any other."""
    job = script("sleepy", 2, COUNT)
    async with session(subject) as it:
        if not await _start_freezable(it, job):
            return
        for _ in range(2):
            await it.engine.freeze(job.id, 1, by=PLAN)
            await it.engine.freeze(job.id, 1, by=PROBE)
            assert await _stands_still(it, job), "a frozen rank goes on"
            await it.engine.thaw(job.id, 1, by=PROBE)
            assert await _stands_still(it, job), "it was woken though someone wants it frozen"
            await it.engine.thaw(job.id, 1, by=PLAN)
            await _goes_on(it, job)

        await it.engine.freeze(job.id, 1, by=PLAN)
        await it.engine.stop(job.id, 1, 10.0)
        assert await it.next() == Stopped(job.id, 1)
        await it.engine.thaw(job.id, 1, by=PLAN)  # one that is over is not asleep


@by_script
async def a_gang_of_two_nodes_is_frozen_whole(subject: Subject, script: Script) -> None:
    """A gang of two nodes is frozen while another attempt uses its devices."""
    job, other = script("wide", 2, COUNT), script("guest", 2, COUNT)
    async with session(subject) as it:
        nodes = await it.engine.nodes()
        same = [node for node in nodes if node.kind == nodes[-1].kind]
        if Rung.FREEZE not in it.engine.stops or len(same) < 2:
            return
        on = await it.over(1, 1)
        await _start(it, job, on)
        await it.engine.freeze(job.id, 1, by=PLAN)
        await _start(it, other, on)
        await _goes_on(it, other)
        assert await _stands_still(it, job), "a frozen rank goes on"

        await it.engine.thaw(job.id, 1, by=PLAN)
        await _goes_on(it, job)
        for each in (job, other):
            await it.engine.stop(each.id, 1, 10.0)
            assert await it.next() == Stopped(each.id, 1)


@by_script
async def a_frozen_attempt_is_adopted(subject: Subject, script: Script) -> None:
    """After a restart it is still frozen, stays so, and can be woken."""
    job = script("dormant", 2, COUNT)
    async with session(subject) as it:
        if not await _start_freezable(it, job):
            return
        await it.engine.freeze(job.id, 1, by=PLAN)
    async with session(subject, frozenset({(job.id, 1)})) as it:
        assert await _stands_still(it, job), "a frozen rank goes on after a restart"
        await it.engine.thaw(job.id, 1, by=PLAN)
        await _goes_on(it, job)
        await it.engine.stop(job.id, 1, 10.0)
        while not isinstance(event := await it.next(), Stopped):
            assert event == Started(job.id, 1), (
                f"{event} was reported for a job that was asked to stop"
            )


async def _start_freezable(it: EngineSession, job: Job) -> bool:
    """Start a gang of two where the engine can freeze it; whether it can."""
    if Rung.FREEZE not in it.engine.stops:
        return False
    await _start(it, job, await it.on(2))
    return True


async def _start(it: EngineSession, job: Job, on: Allocation) -> None:
    await it.engine.start(job, on, 1)
    assert await it.next() == Started(job.id, 1)
    await _goes_on(it, job)


async def _goes_on(it: EngineSession, job: Job) -> None:
    """All ranks print a few lines more."""
    before, ranks = _lines(it, job), job.demand.gpus

    def more() -> bool:
        now = _lines(it, job)
        return all(now.get(rank, 0) >= before.get(rank, 0) + ENOUGH for rank in range(ranks))

    await it.becomes(more, f"{job.id!r} going on")


async def _stands_still(it: EngineSession, job: Job) -> bool:
    await asyncio.sleep(STILL_S)
    before = _lines(it, job)
    await asyncio.sleep(STILL_S)
    return _lines(it, job) == before


def _lines(it: EngineSession, job: Job) -> dict[int, int]:
    return {rank: text.count("\n") for rank, text in read_all(it.engine, job.id).items()}


SLEEPS = (a_gang_is_frozen_whole, a_gang_of_two_nodes_is_frozen_whole, a_frozen_attempt_is_adopted)
