"""Artifacts of jobs on Ray: read on the nodes where these wrote them, by the nodes' runners."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from weft.core.artifacts import FileFacts, FilePiece
from weft.core.errors import EngineError, UnknownName
from weft.core.model.job import Job, NodeId
from weft.engines.machine.artifacts import MOST_FILES, ArtifactFolder
from weft.engines.ray.agents import RayManager
from weft.frozen import frozen


@frozen
class RayArtifacts:
    """Files on the nodes of a job's last attempt, that of rank 0 first.

    `find` is the folder of a job, `nodes` those of an attempt.
    """

    manager: RayManager
    find: Callable[[Job], ArtifactFolder]
    nodes: Callable[[Job, int], Sequence[NodeId]]

    async def list_files(self, job: Job, attempt: int) -> tuple[Sequence[FileFacts], int]:
        """The files of all nodes that answer; of a path on several, that of the first."""
        files: dict[str, FileFacts] = {}
        answers: list[int] = []
        try:
            async for rows, left_out in self._ask(job, attempt, "artifacts"):
                files = {**{row[0]: FileFacts(*row) for row in rows}, **files}
                answers.append(left_out)
        except EngineError:
            if not answers:
                raise
        kept = sorted(files.values())[:MOST_FILES]
        # Nodes may share what they have.
        return kept, max(answers, default=0) + len(files) - len(kept)

    async def read(self, job: Job, attempt: int, path: str, offset: int) -> FilePiece:
        """A piece of the file on the first node that has it."""
        self.find(job).parts_of(path)
        async for piece in self._ask(job, attempt, "artifact", path=path, offset=offset):
            if piece is not None:
                return FilePiece(b64decode(piece[0]), *piece[1:])
        raise UnknownName(f"no file {path[:100]!r}", hint="`weft fetch JOB --list`")

    async def _ask(self, job: Job, attempt: int, call: str, **given: object) -> AsyncIterator[Any]:
        """The answers of nodes, and at last EngineError if one of them gave none."""
        folder = self.find(job)
        where = {"workdir": str(folder.workdir), "inside": folder.inside}
        why: EngineError | None = None
        for node in self.nodes(job, attempt):
            try:
                answer = await self.manager.ask_node(node, call, **where, **given)
            except EngineError as error:
                why = why or error
                continue
            yield answer
        if why is not None:
            raise why
