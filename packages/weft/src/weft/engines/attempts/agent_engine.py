"""Base of engines whose attempts have agents that write where the service reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from weft.base.errors import WireError
from weft.core.events.event import Event
from weft.core.knowledge.measured import MeasuredAttempt
from weft.core.model.job import JobId
from weft.core.plan.about import Controls
from weft.engines.attempts.asleep import SleepsByAgent
from weft.engines.attempts.job_folders import find_attempts, remove_jobs, stored_bytes
from weft.engines.attempts.rounds import Key
from weft.engines.machine.measuring import join_measured, read_measured
from weft.engines.machine.users import let_through
from weft.wire.attempt import SPEC, AttemptSpec, folder_of

# What the agents of an attempt do by themselves, so that every manager can do at least this.
AGENT_CONTROLS = (
    Controls.BATCH
    | Controls.HOST
    | Controls.COUNT
    | Controls.SHIFT
    | Controls.PLAN
    | Controls.RESIZE
)


class AgentEngine(SleepsByAgent):
    """Attempts in folders below `state`, of one part unless it says otherwise."""

    state: Path
    speed, real = 1.0, True  # by the wall clock, jobs are processes
    _queue: asyncio.Queue[Event]

    @property
    def invitation(self) -> str:
        """No node joins by Weft's own means; machines join a cluster by the cluster's."""
        return ""

    def _part_folders(self, key: Key) -> Sequence[Path]:
        return [folder_of(self.state, *key)]

    def _read_key(self, folder: Path) -> Key | None:
        """The attempt that was prepared in a folder; None if none was."""
        with suppress(WireError):
            spec = AttemptSpec.read(folder / SPEC)
            return JobId(spec.job), spec.attempt
        return None

    def running(self) -> set[Key]:
        """Attempts with a mark that they may run, as their folders say."""
        return {key for folder in find_attempts(self.state) if (key := self._read_key(folder))}

    async def forget(self, jobs: Collection[JobId]) -> None:
        """Remove their folders: output, checkpoints of ours, what agents wrote."""
        await asyncio.to_thread(remove_jobs, self.state, jobs)

    def stored_bytes(self, jobs: Collection[JobId]) -> Mapping[JobId, int]:
        return stored_bytes(self.state, jobs)

    def measured(self, job: JobId, attempt: int) -> MeasuredAttempt:
        """Measurements of its agents, as far as the files have come here."""
        return join_measured(map(read_measured, self._part_folders((job, attempt))))

    async def events(self) -> AsyncIterator[Event]:
        """News of nodes and of all attempts, as agents write it."""
        while True:
            yield await self._queue.get()

    def _make_folders(self, *, users: bool) -> None:
        """Make the folders of attempts and their marks.

        With `users` their ranks may walk through.
        """
        for folder in ("jobs", "live"):
            (self.state / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        if users:
            let_through(self.state)
        else:
            (self.state / "jobs").chmod(0o700)  # jobs had users of their own before
