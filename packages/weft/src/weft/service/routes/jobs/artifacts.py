"""Files that jobs leave in the folders that their files name."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.jobs.artifacts import CHUNK, ArtifactFolder
from weft.service.responses.watch import Artifacts

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

HERE = ("local", "slurm")  # engines whose jobs have the files that the service has
BYTES_TYPE = "application/octet-stream"
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {BYTES_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/jobs/{job_id}/artifacts", response_model=Artifacts)
async def artifacts(job_id: str, service: Service, who: Anyone) -> Json:
    """The files in the folder that a job's file names as `artifacts`, 10,000 at most.

    Links, and files of other users, are left out.
    """
    folder = _folder(service, who, job_id)
    files, left_out = await service.read(folder.list_files)
    return Json(Artifacts(folder=folder.inside, files=files, left_out=left_out))


@router.get("/jobs/{job_id}/artifacts/file", response_class=StreamingResponse, responses=BYTES)
async def artifact(
    job_id: str,
    service: Service,
    who: Anyone,
    path: Annotated[str, Query(min_length=1, max_length=4096, description="As in the list.")],
) -> StreamingResponse:
    """One of these files, as long as it is when it is asked for."""
    folder = _folder(service, who, job_id)
    service.streams.check(who)
    handle = await service.read(partial(folder.open_file, path))
    return service.streams.response(who, _read(service, who, handle), BYTES_TYPE)


async def _read(service: Context, who: Caller, handle: int) -> AsyncIterator[bytes]:
    try:
        offset, end = 0, os.fstat(handle).st_size
        while offset < end and service.tokens.allows(who):
            chunk = await service.read(partial(os.pread, handle, min(CHUNK, end - offset), offset))
            if not chunk:
                return
            offset += len(chunk)
            yield chunk
    finally:
        os.close(handle)


def _folder(service: Context, who: Caller, job_id: str) -> ArtifactFolder:
    """The folder of a job that the caller may command: not everyone who sees jobs reads files."""
    job = find_job(service, who, job_id).record.job
    if not who.commands(job):
        raise HttpProblem(403, "its files are for its tenant's users and admins", "ask one of them")
    if job.launch is None or not job.launch.artifacts:
        raise HttpProblem(
            404, f"job {job.id!r} has no artifacts", "name a folder in its file: `artifacts: out`"
        )
    engine = service.live.engine.name
    if engine not in HERE:
        raise HttpProblem(
            409,
            f"the service does not see files of jobs of the engine {engine}",
            "let the job write to shared storage or an object store",
        )
    workdir, inside = Path(job.launch.workdir), job.launch.artifacts
    return ArtifactFolder(workdir, inside, service.live.uid_of(job))
