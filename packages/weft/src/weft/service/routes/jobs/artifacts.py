"""Files that jobs leave in the folders that their files name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from weft.core.artifacts import ArtifactFiles, FilePiece
from weft.core.errors import EngineError
from weft.runtime.records.job_records import JobRecord
from weft.service.access.tokens import Caller
from weft.service.context import PREFIX, PROBLEMS, Anyone, Context, Service, find_job
from weft.service.http.replies import HttpProblem, Json
from weft.service.responses.watch import Artifact, Artifacts

router = APIRouter(prefix=PREFIX, tags=["jobs"], responses=PROBLEMS)

BYTES_TYPE = "application/octet-stream"
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {BYTES_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/jobs/{job_id}/artifacts", response_model=Artifacts)
async def artifacts(job_id: str, service: Service, who: Anyone) -> Json:
    """The files in the folder that a job's file names as `artifacts`, 10,000 at most.

    Links, and files of other users, are left out.
    """
    record, inside, files = _find(service, who, job_id)
    listed, left_out = await files.list_files(record.job, record.attempt)
    shown = [Artifact(**each._asdict()) for each in listed]
    return Json(Artifacts(folder=inside, files=shown, left_out=left_out))


@router.get("/jobs/{job_id}/artifacts/file", response_class=StreamingResponse, responses=BYTES)
async def artifact(
    job_id: str,
    service: Service,
    who: Anyone,
    path: Annotated[str, Query(min_length=1, max_length=4096, description="As in the list.")],
) -> StreamingResponse:
    """One of these files, as long as it is when it is asked for."""
    record, _, files = _find(service, who, job_id)
    service.streams.check(who)
    first = await files.read(record.job, record.attempt, path, 0)
    rest = _read(service, who, record, path, files, first)
    return service.streams.response(who, rest, BYTES_TYPE)


async def _read(
    service: Context,
    who: Caller,
    record: JobRecord,
    path: str,
    files: ArtifactFiles,
    piece: FilePiece,
) -> AsyncIterator[bytes]:
    first, offset = piece, 0
    while piece.data and service.tokens.allows(who):
        yield piece.data[: first.size - offset]
        offset += len(piece.data)
        if offset >= first.size:
            return
        piece = await files.read(record.job, record.attempt, path, offset)
        if piece.inode != first.inode:
            raise EngineError(f"{path[:100]!r} was replaced while it was read")


def _find(service: Context, who: Caller, job_id: str) -> tuple[JobRecord, str, ArtifactFiles]:
    """A job that the caller may command, with its folder: not all who see jobs may read files."""
    record = find_job(service, who, job_id).record
    if not who.commands(record.job):
        raise HttpProblem(403, "its files are for its tenant's users and admins", "ask one of them")
    if record.job.launch is None or not record.job.launch.artifacts:
        raise HttpProblem(
            404,
            f"job {record.job.id!r} has no artifacts",
            "name a folder in its file: `artifacts: out`",
        )
    files = service.driver.engine.artifacts
    if files is None:
        raise HttpProblem(409, "jobs of this engine are simulated: they leave no files")
    return record, record.job.launch.artifacts, files
