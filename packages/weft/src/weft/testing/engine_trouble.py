"""Nodes that are lost and come back, old incarnations on them, a controller that is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

from weft.core.events.event import Failed, Started, StartFailed, Stopped
from weft.core.model.job import Allocation, Slice
from weft.testing.engine_subject import ENDS, Subject, read_all, session

# Writes its attempt's number again and again into a file that all attempts have.
WRITER = "while :; do echo $WEFT_ATTEMPT >> $WEFT_CHECKPOINTS/marks; sleep 0.05; done"
QUIET = 20  # lines of the new attempt without one of the old


async def a_lost_node_takes_its_gang_and_comes_back(subject: Subject) -> None:
    """NodeDown, then a lost attempt that has left its other nodes; NodeUp, and it can be used."""
    if subject.kill_node is None or subject.restore_node is None:
        return
    job = subject.endless("torn", 2)
    async with session(subject) as it:
        on = await it.over(1, 1)
        kept, lost = (part.node for part in on.slices)
        await it.engine.start(job, on, 1)
        assert await it.next() == Started(job.id, 1)

        subject.kill_node(lost)
        try:
            before = await it.until_down(lost)
            ended = before[0] if before else await it.next()
            assert isinstance(ended, Failed), ended
            assert ended.lost, ended
            assert lost not in {node.id for node in await it.engine.nodes()}

            again = Allocation((Slice(kept, (0,)),))
            await it.engine.start(job, again, 2)
            assert await it.next() == Started(job.id, 2)
        finally:
            subject.restore_node(lost)
        await it.until_up(lost)
        await it.engine.stop(job.id, 2, 5.0)
        assert await it.next() == Stopped(job.id, 2)
        await it.engine.start(job, Allocation((Slice(lost, (0,)),)), 3)
        assert await it.next() == Started(job.id, 3)
        await it.engine.stop(job.id, 3, 5.0)
        assert await it.next() == Stopped(job.id, 3)


async def an_old_incarnation_is_fenced(subject: Subject) -> None:
    """An attempt on a lost node ends when a newer attempt has taken over."""
    if subject.kill_node is None or subject.restore_node is None or subject.script is None:
        return
    job = subject.script("fenced", 1, WRITER)
    async with session(subject) as it:
        on = await it.over(1, 1)
        kept, lost = on.slices
        await it.engine.start(job, Allocation((lost,)), 1)
        assert await it.next() == Started(job.id, 1)

        subject.kill_node(lost.node)
        try:
            before = await it.until_down(lost.node)
            ended = before[0] if before else await it.next()
            assert isinstance(ended, (Failed, StartFailed)), ended
            await it.engine.start(job, Allocation((kept,)), 2)
            assert await it.next() == Started(job.id, 2)

            marks = _checkpoints(it.engine.logs(job.id, 2)[0]) / "marks"
            await it.becomes(lambda: _last_are(marks, "2"), "only the new attempt writes")
        finally:
            subject.restore_node(lost.node)
        await it.engine.stop(job.id, 2, 0.5)
        while not isinstance(await it.next(), ENDS):
            pass
        assert _last_are(marks, "2")


async def nothing_is_lost_while_the_controller_is_away(subject: Subject) -> None:
    """Its silence is a state of its own: health shows it, no end is reported, and it goes on."""
    if subject.kill_controller is None or subject.restore_controller is None:
        return
    job = subject.endless("patient", 1)
    late = subject.endless("late", 1)
    async with session(subject) as it:
        await it.begin(job)

        subject.kill_controller()
        try:
            await it.becomes(lambda: not it.engine.health.ok, "bad health")
            assert "no answer from" in it.engine.health.reason
            other = await it.over(1)
            await it.engine.start(late, other, 1)
            await it.silent(3.0)
        finally:
            subject.restore_controller()
        await it.becomes(lambda: it.engine.health.ok, "good health")
        begun = await it.next()
        assert begun == Started(late.id, 1), begun
        for running in (job, late):
            await it.engine.stop(running.id, 1, 5.0)
        assert {await it.next() for _ in (job, late)} == {Stopped(job.id, 1), Stopped(late.id, 1)}


async def a_gang_over_nodes_is_adopted(subject: Subject) -> None:
    """After a restart it runs on with the same processes, is reported again, and can be stopped."""
    if subject.script is None or subject.kill_node is None:
        return
    job = subject.script("kept", 2, "echo pid $$; exec sleep 1000")
    async with session(subject) as it:
        await it.engine.start(job, await it.over(1, 1), 1)
        assert await it.next() == Started(job.id, 1)
        await it.becomes(
            lambda: all("pid" in text for text in read_all(it.engine, job.id).values()), "pids"
        )
        before = read_all(it.engine, job.id)
    await asyncio.sleep(0)
    async with session(subject, frozenset({(job.id, 1)})) as it:
        assert await it.next() == Started(job.id, 1)
        assert read_all(it.engine, job.id) == before

        await it.engine.stop(job.id, 1, 5.0)

        assert await it.next() == Stopped(job.id, 1)


async def what_nobody_knows_is_ended(subject: Subject) -> None:
    """An attempt that a restarted service does not expect is not left running."""
    if subject.script is None or subject.kill_node is None:
        return
    job = subject.script("stranger", 1, WRITER)
    async with session(subject) as it:
        await it.begin(job)
        marks = _checkpoints(it.engine.logs(job.id, 1)[0]) / "marks"
        await it.becomes(marks.exists, "a first mark")
    async with session(subject) as it:
        await it.becomes(_Growth(marks).has_ended, "its end")


def _checkpoints(log: Path) -> Path:
    """A job's own folder of checkpoints, from where one of its ranks logs."""
    return next(up / "checkpoints" for up in log.parents if (up / "checkpoints").is_dir())


def _last_are(marks: Path, attempt: str) -> bool:
    lines = marks.read_text().split() if marks.exists() else []
    return len(lines) > QUIET and set(lines[-QUIET:]) == {attempt}


class _Growth:
    """Growth of a file that is written all the time; it has ended after twenty equal looks."""

    def __init__(self, file: Path) -> None:
        self._file, self._size, self._looks = file, -1, 0

    def has_ended(self) -> bool:
        size = self._file.stat().st_size
        self._looks = self._looks + 1 if size == self._size else 0
        self._size = size
        return self._looks >= QUIET


TROUBLE = (
    a_lost_node_takes_its_gang_and_comes_back,
    an_old_incarnation_is_fenced,
    nothing_is_lost_while_the_controller_is_away,
    a_gang_over_nodes_is_adopted,
    what_nobody_knows_is_ended,
)
