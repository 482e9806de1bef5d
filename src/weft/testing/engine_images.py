"""Jobs in images, for engines that run them: gangs, volumes, a shell, and another size later."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from weft.core.events.event import Finished, Started, Stopped
from weft.core.model.job import Job
from weft.core.model.launch import Software, SoftwareKind
from weft.testing.engine_sessions import reach, type_into
from weft.testing.engine_subject import Image, Subject, read_all, run_script, session

# The volume is elsewhere inside, and the node's own programs are not there at all.
LOOK = "read -r line < /inside/file; test ! -e /usr || exit 9; echo $line, $RANK of $WORLD_SIZE"


async def a_gang_runs_in_its_image(subject: Subject) -> None:
    """Over nodes where there are two, with its volumes and a shell; at another size later."""
    image = subject.image
    if image is None or subject.script is None:
        return
    ends = _inside(image, subject.script("in-an-image", 2, LOOK))
    waits = _inside(image, subject.script("in-an-image", 2, f"{LOOK}; while :; do sleep 1; done"))
    async with session(subject) as it:
        it.engine.check(waits)
        several = len(await it.engine.nodes()) > 1
        await it.engine.start(waits, await (it.over(1, 1) if several else it.on(2)), 1)
        assert await it.next() == Started(waits.id, 1)
        both = {rank: f"{image.line}, {rank} of 2\n" for rank in range(2)}
        await it.becomes(lambda: read_all(it.engine, waits.id) == both, "that both ranks print")
        if (sessions := it.engine.sessions) is not None:
            async with asyncio.timeout(subject.patience_s):
                said = await type_into(await reach(sessions, waits, "shell"), b"exit 6\n")
            assert said[1] == 6, said
        await it.engine.stop(waits.id, 1, 1.0)
        assert await it.next() == Stopped(waits.id, 1)

        end, printed = await run_script(it, ends, await it.on(1), 2)
        assert end == Finished(waits.id, 2), printed
        assert printed == {0: f"{image.line}, 0 of 1\n"}


def _inside(image: Image, job: Job) -> Job:
    assert job.launch is not None
    software = Software(SoftwareKind.IMAGE, image.name, (f"{image.volume}:/inside:ro",))
    launch = replace(job.launch, software=software, workdir=image.volume, env=image.env)
    return replace(job, launch=launch)


IMAGES = (a_gang_runs_in_its_image,)
