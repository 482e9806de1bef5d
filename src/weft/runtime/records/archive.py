"""Records of jobs that have left go to the store, some at a time, beside a driver that goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice

from weft.core.errors import WeftError
from weft.core.state.ended_jobs import EndedJob, EndedJobs
from weft.runtime.records.job_records import JobRecord, JobRecords, row_of

log = logging.getLogger(__name__)

AT_ONCE = 100
PAUSE_S = 0.05


class Archive:
    """Hands records to the store whenever that many jobs have left."""

    def __init__(self, ended: EndedJobs) -> None:
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    def look(self, jobs: JobRecords, broken: Callable[[asyncio.Task[None]], None]) -> None:
        """Between two turns: begin if there is enough to do."""
        if len(jobs.done) >= AT_ONCE and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._put(jobs))
            self._task.add_done_callback(broken)

    async def finish(self) -> None:
        """Wait for what is being written."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _put(self, jobs: JobRecords) -> None:
        while len(jobs.done) >= AT_ONCE:
            records = [jobs.live[job] for job in islice(jobs.done, AT_ONCE)]
            try:
                rows = await asyncio.to_thread(self._write, records)
                forgotten = jobs.shelve(rows)
                if forgotten:
                    await asyncio.to_thread(self._ended.remove, forgotten)
            except WeftError as error:
                log.warning("ended jobs stay in memory for now: %s", error.what)
                return
            await asyncio.sleep(PAUSE_S)

    def _write(self, records: Sequence[JobRecord]) -> list[EndedJob]:
        rows = [row_of(record) for record in records]
        self._ended.put(rows)
        return rows
