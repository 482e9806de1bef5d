"""Files of attempts to and from nodes that do not share the service's folder, through Ray."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import EngineError
from weft.engines.fleet.port import Away
from weft.engines.ray.agents import RayManager
from weft.wire.attempt import CURRENT, MASTER

PAUSE_S = 0.4  # between two questions for news of the same folders


@dataclass
class RayChannel:
    """Carries what `manager` says is not shared; the rest is there already."""

    manager: RayManager
    _fetched: float = 0.0
    _met: set[Path] = field(default_factory=set)

    async def send(self, files: Sequence[Path]) -> None:
        """Bring files of parts to their nodes, and the job's newest attempt to all it may be on."""
        wanted = [
            (node, str(file))
            for file in files
            for node in (
                self.manager.apart() if file.name == CURRENT else self.manager.apart(file.parent)
            )
        ]
        if not wanted:
            return
        try:
            await self.manager.carry_files("send", files=wanted)
        except (OSError, LookupError, Away) as error:
            raise EngineError(f"cannot send files through Ray: {error}") from error

    async def fetch(self, folders: Sequence[Path]) -> None:
        """Bring what agents wrote; where rank 0 listens goes on to the other nodes of its gang."""
        now = time.monotonic()
        if now - self._fetched < PAUSE_S:
            return
        self._fetched = now
        apart = {folder: self.manager.apart(folder) for folder in folders}
        wanted = [(node, str(folder)) for folder, nodes in apart.items() for node in nodes]
        self._met &= {folder.parent for folder in folders}
        meeting = {folder.parent for folder, nodes in apart.items() if nodes} - self._met
        wanted += [
            (node, str(folder.parent))
            for folder, nodes in apart.items()
            for node in nodes
            if folder.parent in meeting
        ]
        if not wanted:
            return
        try:
            await self.manager.carry_files("fetch", folders=wanted)
        except Away:
            return  # the manager's own look says so
        for whole in meeting:
            if (whole / MASTER).exists():
                await self._tell_all(whole, [folder for folder in apart if folder.parent == whole])

    async def _tell_all(self, whole: Path, parts: Sequence[Path]) -> None:
        nodes = {node for part in parts for node in self.manager.apart(part)}
        files = [(node, str(whole / MASTER)) for node in sorted(nodes)]
        await self.manager.carry_files("send", files=files)
        self._met.add(whole)
