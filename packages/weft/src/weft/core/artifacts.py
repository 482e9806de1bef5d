"""Files that jobs leave in the folders that they name: what an engine lists and reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from weft.core.model.job import Job


class FileFacts(NamedTuple):
    """A file by its path from the working directory, its bytes, and when it changed."""

    path: str
    size: int
    modified: float


class FilePiece(NamedTuple):
    """Bytes of a file, with its size and its inode when they were read."""

    data: bytes
    size: int
    inode: int


class ArtifactFiles(Protocol):
    """Files of jobs where their processes wrote them.

    EngineError where these cannot be reached now, InvalidConfig where they never can.
    """

    async def list_files(self, job: Job, attempt: int) -> tuple[Sequence[FileFacts], int]:
        """The files in order of their paths, and how many others there are."""
        ...

    async def read(self, job: Job, attempt: int, path: str, offset: int) -> FilePiece:
        """A piece of a file from `offset` on, empty at its end; UnknownName where none is."""
        ...
