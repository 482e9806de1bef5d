"""Reaching into attempts on this machine: their terminals, and ports that they listen on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from weft.core.model.job import JobId
from weft.core.protocols import Way
from weft.frozen import frozen
from weft.wire.attempt import SHELLS, TAG, TERMINAL, folder_of, short_path
from weft.wire.doors import Streams
from weft.wire.processes import descendants, find_port, find_tagged


@frozen
class LocalSessions:
    """Of the attempts below `state`; `pids` tells each rank's process."""

    state: Path
    pids: Callable[[JobId, int], Mapping[int, int]]

    async def connect(self, job: JobId, attempt: int, to: Way) -> Streams | None:
        """To the attempt's terminal, a new shell beside it, or a port of its own processes."""
        if isinstance(to, int):
            at = await asyncio.to_thread(lambda: find_port(self._processes(job, attempt), to))
            return await asyncio.open_connection(*at) if at else None
        name = TERMINAL if to == "terminal" else SHELLS
        path = Path(short_path(folder_of(self.state, job, attempt) / name))
        return await asyncio.open_unix_connection(str(path)) if path.is_socket() else None

    def _processes(self, job: JobId, attempt: int) -> set[int]:
        ranks = [*self.pids(job, attempt).values()]
        tag = str(folder_of(self.state, job, attempt))
        below = (child for pid in ranks for child in descendants(pid))
        return {*ranks, *find_tagged(TAG, tag), *below}
