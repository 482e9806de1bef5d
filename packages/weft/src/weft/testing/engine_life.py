"""Life of an attempt: started, stopped, failed, repeated, adopted, its output kept."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from weft.core.events.event import Failed, Finished, Started, Stopped
from weft.core.model.cluster import Node
from weft.core.model.job import Allocation, Batch, Discipline, Sharing, Tier, TimeShift
from weft.core.plan.about import Controls, Wants
from weft.core.protocols import DeviceSharing
from weft.testing.engine_subject import ENDS, GHOST, Subject, session

NAMES = ("sweep.7", "team:net", "100%j %x", 'it\'s $(exit 1); "so"|{é}')


async def a_gang_starts_and_finishes(subject: Subject) -> None:
    """Started, then Finished, for all ranks together."""
    job = subject.job("gang", 2)
    async with session(subject) as it:
        await it.begin(job)
        assert await it.next() == Finished(job.id, 1)


async def jobs_of_any_name_run(subject: Subject) -> None:
    """Dots, colons, patterns, quotes and commands in a name are read as part of the name."""
    async with session(subject) as it:
        for name in NAMES:
            job = subject.job(name, 1)
            await it.start(job)

            assert await it.next() == Started(job.id, 1)
            assert await it.next() == Finished(job.id, 1)


async def a_stop_is_obeyed(subject: Subject) -> None:
    """Stopped is reported once the job has left."""
    job = subject.endless("asked", 1)
    async with session(subject) as it:
        await it.begin(job)

        await it.engine.stop(job.id, 1, 10.0)
        await it.engine.stop(job.id, 1, 10.0)

        assert await it.next() == Stopped(job.id, 1)


async def a_stop_is_enforced(subject: Subject) -> None:
    """A job that does not exit within the grace time is ended."""
    if subject.stubborn is None:
        return
    job = subject.stubborn("stubborn", 2)
    async with session(subject) as it:
        await it.begin(job)

        await it.engine.stop(job.id, 1, 0.5)

        assert await it.next() == Stopped(job.id, 1)


async def a_failure_is_told(subject: Subject) -> None:
    """Failed says why, and leaves the decision to try again to the driver."""
    job = subject.failing("failing", 2)
    async with session(subject) as it:
        await it.begin(job)
        failed = await it.next()
        assert isinstance(failed, Failed)
        assert failed.reason
        assert not failed.lost


async def an_attempt_runs_once(subject: Subject) -> None:
    """Starting it again changes nothing, neither while it runs nor after."""
    job = subject.job("once", 1)
    async with session(subject) as it:
        await it.start(job)
        await it.begin(job)
        assert await it.next() == Finished(job.id, 1)

        await it.start(job, attempt=2)

        assert await it.next() == Started(job.id, 2)
        assert await it.next() == Finished(job.id, 2)
        await it.silent()


async def stopping_what_is_not_there_is_fine(subject: Subject) -> None:
    """A stop is always answered."""
    async with session(subject) as it:
        await it.engine.stop(GHOST, 7, 1.0)

        assert await it.next() == Stopped(GHOST, 7)


async def running_jobs_are_adopted(subject: Subject) -> None:
    """Attempts from before a restart run on, are reported again, and can be stopped."""
    job = subject.endless("adopted", 2)
    async with session(subject) as it:
        await it.begin(job)
    async with session(subject, frozenset({(job.id, 1)})) as it:
        assert await it.next() == Started(job.id, 1)

        await it.engine.stop(job.id, 1, 10.0)

        assert await it.next() == Stopped(job.id, 1)


async def what_ended_meanwhile_is_told(subject: Subject) -> None:
    """A job that finished while no service listened is not lost."""
    job = subject.job("meanwhile", 1)
    async with session(subject) as it:
        await it.begin(job)
        assert await it.next() == Finished(job.id, 1)
    async with session(subject, frozenset({(job.id, 1)})) as it:
        assert await it.next() == Started(job.id, 1)
        assert await it.next() == Finished(job.id, 1)


async def unknown_attempts_are_not_known(subject: Subject) -> None:
    """Adoption says which attempts were never there."""
    engine = subject.make()
    known = await engine.adopt({(GHOST, 1)})
    await engine.close()

    assert known == set()


async def output_is_kept(subject: Subject) -> None:
    """Each rank's output can be read, also after the end."""
    job = subject.job("printing", 2)
    async with session(subject) as it:
        await it.start(job)
        while not isinstance(await it.next(), ENDS):
            pass

        files = it.engine.logs(job.id, 1)

        assert it.engine.logs(GHOST, 1) == {}
        if subject.printed:
            assert sorted(files) == [0, 1]
            for path in files.values():
                assert subject.printed in path.read_text(), f"{path} lacks {subject.printed!r}"


async def it_says_what_it_is(subject: Subject) -> None:
    """The engine's declarations make sense, and it is well after adoption."""
    async with session(subject) as it:
        engine = it.engine
        known = Controls(sum(flag.value for flag in Controls))
        assert isinstance(engine.wants, Wants)
        assert not engine.supports & ~known, "it claims flags that there are not"
        assert engine.supports.value >= 0, "it lists what it does not support; list what it does"
        assert engine.sharing in get_args(DeviceSharing)
        assert engine.speed > 0.0
        assert engine.health.ok, engine.health.reason
        for node in await engine.nodes():
            assert node.gpus > 0
            assert node.cpus > 0.0 or Controls.HOST not in engine.supports, f"{node} has no CPUs"


async def new_terms_are_taken(subject: Subject) -> None:
    """Every field that it supports can be changed while a job runs, which goes on."""
    job = subject.endless("adjusted", 1)
    async with session(subject) as it:
        await it.begin(job)
        supports = it.engine.supports
        for control, to in changes(await it.on(1), (await it.engine.nodes())[0]).items():
            if control in supports:
                await it.engine.adjust(job.id, 1, to)
        await it.engine.adjust(GHOST, 1, await it.on(1))
        assert it.engine.health.ok, it.engine.health.reason

        await it.engine.stop(job.id, 1, 10.0)

        assert await it.next() == Stopped(job.id, 1)


def changes(on: Allocation, node: Node) -> dict[Controls, Allocation]:
    """Return the allocation with another value for each field that may be set."""
    (part,) = on.slices
    half = replace(part, cpus=node.cpus / 2, mem_gb=node.mem_gb / 2)
    lockstep = Sharing(0.5, phase=0.5, discipline=Discipline.LOCKSTEP)
    return {
        Controls.BATCH: replace(on, batch=Batch(32, 2)),
        Controls.HOST: replace(on, slices=(half,)),
        Controls.SHARE: replace(on, sharing=Sharing(0.5)),
        Controls.TIER: replace(on, sharing=Sharing(0.0, Tier.OPPORTUNISTIC)),
        Controls.PHASE: replace(on, sharing=lockstep),
        Controls.SHIFT: replace(on, time_shift=TimeShift(0.2, 0.1)),
    }


LIFE = (
    a_gang_starts_and_finishes,
    jobs_of_any_name_run,
    a_stop_is_obeyed,
    a_stop_is_enforced,
    a_failure_is_told,
    an_attempt_runs_once,
    stopping_what_is_not_there_is_fine,
    running_jobs_are_adopted,
    what_ended_meanwhile_is_told,
    unknown_attempts_are_not_known,
    output_is_kept,
    it_says_what_it_is,
    new_terms_are_taken,
)
