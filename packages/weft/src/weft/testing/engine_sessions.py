"""Reaching into jobs, in images too: shells, terminals and ports, for engines that have them."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import replace

from weft.core.events.event import Failed, Finished, Started, Stopped
from weft.core.model.job import Job
from weft.core.model.launch import Software, SoftwareKind
from weft.core.protocols import Sessions, Way
from weft.testing.engine_subject import (
    Image,
    Script,
    Subject,
    by_script,
    read_all,
    run_script,
    session,
)

PAUSE_S = 0.1
HEAD = struct.Struct(">cI")  # of a frame: `d` is data, `x` an exit code
SERVE = f"""exec {sys.executable} -c '
import socket
door = socket.create_server(("127.0.0.1", 0))
print("port", door.getsockname()[1], flush=True)
while True:
    line = door.accept()[0]
    line.sendall(b"from the job")
    line.close()
'"""
# The volume is elsewhere inside, and the node's own programs are not there at all.
LOOK = "read -r line < /inside/file; test ! -e /usr || exit 9; echo $line, $RANK of $WORLD_SIZE"
PORT = re.compile(r"^port (\d+)$", re.MULTILINE)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@by_script
async def people_reach_into_a_job(subject: Subject, script: Script) -> None:
    """A shell beside it has its variables and an exit code; a port is reached if it is its own."""
    async with session(subject) as it:
        if (sessions := it.engine.sessions) is None:
            return
        job = script("reached", 1, SERVE)
        await it.begin(job)
        async with asyncio.timeout(subject.patience_s):
            streams = await reach(sessions, job, "shell")
            answer = await type_into(streams, b"echo $((6 * 7)) on $WEFT_DEVICES.; exit 5\n")
            assert re.search(rb"42 on \d+\.", answer[0]), answer
            assert answer[1] == 5, answer

            while (port := PORT.search("".join(read_all(it.engine, job.id).values()))) is None:
                await asyncio.sleep(PAUSE_S)
            reader, writer = await reach(sessions, job, int(port[1]))
            assert await reader.read() == b"from the job"
            writer.close()
            with socket.create_server(("127.0.0.1", 0)) as others:
                assert await sessions.connect(job.id, 1, others.getsockname()[1]) is None
            assert await sessions.connect(job.id, 1, "terminal") is None

        await it.engine.stop(job.id, 1, 10.0)
        assert await it.next() == Stopped(job.id, 1)


@by_script
async def a_terminal_is_typed_into(subject: Subject, script: Script) -> None:
    """A job with a terminal does what is typed, and ends as its process does."""
    async with session(subject) as it:
        if (sessions := it.engine.sessions) is None:
            return
        job = script("typed-into", 1, "exec sh")
        assert job.launch is not None
        job = replace(job, launch=replace(job.launch, pty=True))
        it.engine.check(job)
        await it.start(job)
        assert await it.next() == Started(job.id, 1)
        async with asyncio.timeout(subject.patience_s):
            streams = await reach(sessions, job, "terminal")
            answer = await type_into(streams, b"tty; exit 7\n")
        assert b"/dev/pts/" in answer[0], answer
        assert answer[1] == 7, answer
        assert (await it.told(Failed)).reason


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
                answer = await type_into(await reach(sessions, waits, "shell"), b"exit 6\n")
            assert answer[1] == 6, answer
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


async def reach(sessions: Sessions, job: Job, to: Way) -> Streams:
    """A connection into an attempt, as soon as it has one."""
    while (streams := await sessions.connect(job.id, 1, to)) is None:
        await asyncio.sleep(PAUSE_S)
    return streams


async def type_into(streams: Streams, text: bytes) -> tuple[bytes, int | None]:
    """Return the output until its end, and the exit code; None if the connection ended first."""
    reader, writer = streams
    writer.write(HEAD.pack(b"d", len(text)) + text)
    printed = b""
    with suppress(asyncio.IncompleteReadError):
        while True:
            kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
            payload = await reader.readexactly(length)
            if kind == b"x":
                writer.close()
                return printed, int(payload)
            printed += payload
    return printed, None


SESSIONS = (people_reach_into_a_job, a_terminal_is_typed_into, a_gang_runs_in_its_image)
