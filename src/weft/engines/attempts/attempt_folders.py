"""What is kept of attempts on this machine, in their folders below `state`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from weft.core.knowledge.measured import Measured
from weft.core.model.job import JobId
from weft.engines.attempts.job_folders import find_marked_attempts, remove_jobs, stored_bytes
from weft.engines.attempts.watch import rank_logs
from weft.engines.machine.measuring import read_measured
from weft.wire.attempt import folder_of


class AttemptFolders:
    """A base for engines whose agents write where the service reads."""

    state: Path

    def running(self) -> set[tuple[JobId, int]]:
        """Attempts with a mark that they may run, as their folders say."""
        return find_marked_attempts(self.state)

    async def forget(self, jobs: Collection[JobId]) -> None:
        """Remove their folders: output, checkpoints of ours, what agents wrote."""
        await asyncio.to_thread(remove_jobs, self.state, jobs)

    def stored_bytes(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        """The size of each job's folder."""
        return stored_bytes(self.state, jobs)

    def logs(self, job: JobId, attempt: int) -> Mapping[int, Path]:
        """Each rank's file; what was too much for one is in the same name with `.1`."""
        return rank_logs(folder_of(self.state, job, attempt))

    def measured(self, job: JobId, attempt: int) -> Measured:
        """What its agent saw lately."""
        return read_measured(folder_of(self.state, job, attempt))
