"""A job that leaves files, some of which lead elsewhere, and what an engine may read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.core.artifacts import ArtifactFiles
from weft.core.errors import InvalidConfig, UnknownName
from weft.core.events.event import Finished
from weft.core.model.job import Demand, Job, JobId
from weft.core.model.launch import Launch
from weft.run_terms import Processes
from weft.testing.engine_subject import Subject, run_script, session

LEAVES = """
mkdir -p out/best; printf 1234 > out/best/model.pt; printf x > "out/a b.txt"; printf no > beside
ln -s ../secret out/link; ln -s .. out/up; mkfifo out/pipe; printf y > "$(printf 'out/a\\nb')"
"""
KEPT = {"out/a b.txt": 1, "out/best/model.pt": 4}
LEFT_OUT = 4  # two links, a pipe, and a name of two lines
HOSTILE = ["secret", "out/link", "out/up/secret", "out/pipe", "out/../secret", "/etc/passwd", "out"]
LARGE = 5 << 20  # more than one piece
FILLS = f"head -c {LARGE} /dev/urandom > out/large; cp out/large copy"


async def files_are_read(subject: Subject, workdir: Path, there: Path) -> None:
    """An engine lists and reads what a job left; its `workdir` is `there` on its node."""
    there.mkdir(parents=True)
    (there / "secret").write_text("hush")
    launch = Launch(
        ("sh", "-c", LEAVES + FILLS),
        workdir=str(workdir),
        artifacts="out",
        processes=Processes.PER_GPU,
    )
    job = Job(JobId("leaves"), demand=Demand(1), launch=launch)
    async with session(subject) as it:
        end, printed = await run_script(it, job, await it.over(1))
        assert end == Finished(job.id, 1), printed
        files = it.engine.artifacts
        assert files is not None
        listed, left_out = await files.list_files(job, 1)
        assert {file.path: file.size for file in listed} == {**KEPT, "out/large": LARGE}
        assert left_out == LEFT_OUT
        assert await read_whole(files, job, "out/large") == (there / "copy").read_bytes()
        for path in [*HOSTILE, "out/none", "out/best", "out/a\0b"]:
            with pytest.raises((UnknownName, InvalidConfig)):
                await files.read(job, 1, path, 0)


async def read_whole(files: ArtifactFiles, job: Job, path: str) -> bytes:
    body = b""
    while (piece := await files.read(job, 1, path, len(body))).data:
        body += piece.data
    assert piece.size == len(body)
    return body
