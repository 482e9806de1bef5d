"""Active jobs as columns, rows in order of submission.

One matrix of float64 holds every column, so that removing a row is one move of memory and a
column is a contiguous view. Columns are read-only to policies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from math import inf

import numpy as np
from numpy.typing import NDArray

from weft.core.errors import InvalidConfig
from weft.core.model.job import After, Allocation, Job, JobId, Stage, Tier
from weft.core.state.cells import (
    ColumnNumber,
    Floats,
    TableColumns,
    close_gap,
    hold,
    read_row_meters,
    switch_off,
    switch_on,
    write_row,
)

Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

FEW_WAITING = 64  # rows that are quicker found one by one


COLUMNS: Mapping[str, ColumnNumber] = {
    name.lower(): number for name, number in vars(TableColumns).items() if name.isupper()
}


class JobTable:
    """The columns, and beside them the job and the allocation of each row."""

    __slots__ = (
        "_awaited",
        "_cells",
        "_known",
        "_row_of_seq",
        "_waiting",
        "allocations",
        "conditional",
        "jobs",
        "promised",
        "size",
        "suspended",
    )

    def __init__(self, capacity: int = 64) -> None:
        self._cells: Floats = np.zeros((len(COLUMNS), capacity))
        self._row_of_seq: list[int] = []
        self._known: dict[JobId, int] | None = {}
        self._waiting: set[int] | None = set()
        self._awaited: dict[int, tuple[After, tuple[JobId, ...], int]] = {}
        self.size = 0
        self.conditional = 0  # rows whose jobs may be kept back by more than devices
        self.suspended: set[JobId] = set()  # jobs that no policy is asked about
        self.promised: set[JobId] = set()  # whose deadlines were promised
        self.jobs: list[Job] = []
        self.allocations: list[Allocation | None] = []

    def __len__(self) -> int:
        return self.size

    def __contains__(self, job: object) -> bool:
        return job in (self._seq_of if self._known is None else self._known)

    @property
    def _seq_of(self) -> dict[JobId, int]:
        if self._known is None:
            ids = (job.id for job in self.jobs)
            self._known = dict(zip(ids, self._row_of_seq, strict=True))
        return self._known

    @property
    def _waiting_seqs(self) -> set[int]:
        """Submission numbers of the rows that hold nothing; counted once, then kept."""
        if self._waiting is None:
            self._waiting = set(self.seq[self.held == 0.0].astype(np.int64).tolist())
        return self._waiting

    @property
    def waiting(self) -> int:
        """The number of rows that hold nothing; costs nothing to ask."""
        return len(self._waiting_seqs if self._waiting is None else self._waiting)

    def waiting_rows(self) -> Rows:
        """The rows that hold nothing, in order; where few do, it costs what those cost."""
        waiting = self._waiting_seqs
        if len(waiting) > min(FEW_WAITING, 8 + self.size // 256):
            many: Rows = (self.held == 0.0).nonzero()[0]
            return many
        rows = [bisect_left(self._row_of_seq, seq) for seq in sorted(waiting)]
        return np.array(rows, dtype=np.intp)

    def first_waiting(self) -> int:
        """The first row that holds nothing, where there is one."""
        return bisect_left(self._row_of_seq, min(self._waiting_seqs))

    def column(self, which: ColumnNumber) -> Floats:
        """Return one column by its name."""
        return self._cells[which, : self.size]

    # The columns policies read most, under their own names.
    @property
    def seq(self) -> Floats:
        """Order of submission; unique and never reused."""
        return self._cells[TableColumns.SEQ, : self.size]

    @property
    def submitted(self) -> Floats:
        """Times of submission, by row."""
        return self._cells[TableColumns.SUBMITTED, : self.size]

    @property
    def gpus(self) -> Floats:
        return self._cells[TableColumns.GPUS, : self.size]

    @property
    def need(self) -> Floats:
        """GPUs asked for, a fraction of a device counted as that fraction."""
        return self._cells[TableColumns.NEED, : self.size]

    @property
    def held(self) -> Floats:
        """Devices promised now; 0 for a waiting job."""
        return self._cells[TableColumns.HELD, : self.size]

    @property
    def started(self) -> Floats:
        """The time at which each job first ran; infinite before."""
        return self._cells[TableColumns.STARTED, : self.size]

    def ran(self, now: float) -> Floats:
        """Seconds each job has executed."""
        return self._read(TableColumns.RAN_BASE, TableColumns.RAN_RATE, TableColumns.RAN_SINCE, now)

    def service(self, now: float) -> Floats:
        """GPU-seconds each job has attained."""
        return self._read(
            TableColumns.SERVICE_BASE, TableColumns.SERVICE_RATE, TableColumns.SERVICE_SINCE, now
        )

    def _read(self, base: int, rate: int, since: int, now: float) -> Floats:
        """A linear meter of every row."""
        c, n = self._cells, self.size
        return c[base, :n] + c[rate, :n] * (now - c[since, :n])

    def awaits(self, after: After) -> bool:
        """True if one of these jobs is still here.

        Jobs that left do not come back, so it is asked for the first that was here the last time:
        however often, each is looked at once, and jobs with one `After` together cost one look.
        """
        if not after:
            return False
        if len(self._awaited) > 2 * self.size + FEW_WAITING:
            self._awaited.clear()
        known, jobs, at = self._awaited.get(id(after), (None, (), 0))
        if known is not after:  # also in a copy of the table, whose jobs are elsewhere
            jobs, at = after.jobs, 0
        while at < len(jobs) and jobs[at] not in self:
            at += 1
        self._awaited[id(after)] = after, jobs, at
        return at < len(jobs)

    def row(self, job: JobId) -> int:
        """The row of a job; rows move when earlier jobs leave."""
        known = self._known
        return bisect_left(self._row_of_seq, (self._seq_of if known is None else known)[job])

    def find(self, job: JobId) -> int | None:
        """The row of a job; None for a job that is not active."""
        seq = (self._seq_of if self._known is None else self._known).get(job)
        return None if seq is None else bisect_left(self._row_of_seq, seq)

    def find_attempt(self, job: JobId, attempt: int) -> int | None:
        """The row of a job whose promised attempt this is; None for news of an older one."""
        seq = (self._seq_of if self._known is None else self._known).get(job)
        if seq is None:
            return None
        row = bisect_left(self._row_of_seq, seq)
        if self.allocations[row] is None or self._cells.item(TableColumns.ATTEMPT, row) != attempt:
            return None
        return row

    def add(self, job: Job, seq: int, now: float = 0.0) -> int:
        """Append a job that came at `now` at the end and return its row."""
        n = self.size
        if n == self._cells.shape[1]:
            grown = np.zeros((len(COLUMNS), max(2 * n, 64)))
            grown[:, :n] = self._cells
            self._cells = grown
        self._write_demand(n, job, seq, now)
        known, waiting = self._known, self._waiting
        (self._seq_of if known is None else known)[job.id] = seq
        self._row_of_seq.append(seq)
        (self._waiting_seqs if waiting is None else waiting).add(seq)
        self.conditional += job.conditional
        self.jobs.append(job)
        self.allocations.append(None)
        self.size = n + 1
        return n

    def _write_demand(self, row: int, job: Job, seq: int, now: float) -> None:
        """Fill a new row; every other cell is 0."""
        demand = job.demand
        need = demand.gpus * demand.share
        asked = (seq, job.submitted, demand.gpus, demand.min, demand.max, need)
        kept = (job.priority, job.tier, Stage.PENDING, 0, 0)
        meters = (0.0, 0.0, now, 0.0, 0.0, now)
        write_row(self._cells, row, (*asked, *kept, *meters, inf, 0, 0, job.stoppable, 0.0))

    def remove(self, row: int) -> None:
        """Close the gap that a job leaves, from the side where fewer rows are."""
        n = self.size
        if close_gap(self._cells, row, n):
            self._cells = self._cells[:, 1:]
        job = self.jobs[row]
        self.suspended.discard(job.id)
        self.promised.discard(job.id)
        if self.conditional:
            self.conditional -= job.conditional
        known, waiting = self._known, self._waiting
        seq = (self._seq_of if known is None else known).pop(job.id)
        (self._waiting_seqs if waiting is None else waiting).discard(seq)
        del self._row_of_seq[row]
        del self.jobs[row]
        del self.allocations[row]
        self.size = n - 1

    @classmethod
    def of(cls, cells: Floats, jobs: Sequence[Job], held: Sequence[Allocation | None]) -> JobTable:
        if cells.shape != (len(COLUMNS), len(jobs)) or len(held) != len(jobs):
            raise InvalidConfig(f"{cells.shape} cells are not those of {len(jobs)} jobs")
        table = cls(max(len(jobs), 1))
        table.size = len(jobs)
        table._cells[:, : table.size] = cells
        table.jobs, table.allocations = list(jobs), list(held)
        table.conditional = sum(job.conditional for job in jobs)
        table._row_of_seq = table.seq.astype(np.int64).tolist()
        table._known = table._waiting = None
        return table

    def cells(self) -> Floats:
        """A copy of all columns, in the order of COLUMNS."""
        return self._cells[:, : self.size].copy()

    def get(self, row: int, which: ColumnNumber) -> float:
        return self._cells.item(which, row)

    def set(self, row: int, which: ColumnNumber, value: float) -> None:
        """Write one cell; only the state does this."""
        self._cells[which, row] = value
        if which == TableColumns.HELD and self._waiting is not None:
            if value:
                self._waiting.discard(self._row_of_seq[row])
            else:
                self._waiting.add(self._row_of_seq[row])

    def hold(self, row: int, to: Allocation) -> int:
        """The row as it is once it is promised devices; the number of the attempt."""
        gpus = to.gpus
        self.allocations[row] = to
        attempt = hold(self._cells, row, gpus, Stage.STARTING)
        if self._waiting is not None and gpus:
            self._waiting.discard(self._row_of_seq[row])
        return attempt

    def set_priority(self, row: int, priority: float, tier: Tier) -> Job:
        """Give a job another priority; the job as it is then."""
        self.jobs[row] = job = replace(self.jobs[row], priority=priority, tier=tier)
        self.set(row, TableColumns.PRIORITY, priority)
        self.set(row, TableColumns.TIER, tier)
        self.set(row, TableColumns.PREEMPTIBLE, job.stoppable)
        return job

    def note_failure(self, row: int, now: float) -> None:
        """An attempt of the job failed, and it is tried again."""
        self.set(row, TableColumns.RETRIES, self.get(row, TableColumns.RETRIES) + 1)
        self.set(row, TableColumns.FAILED, now)

    def keep_alone(self, row: int) -> Job:
        """Stop a job from sharing its devices from now on; the job as it is then."""
        self.jobs[row] = job = replace(self.jobs[row], shareable=False)
        return job

    def meters_on(self, row: int, now: float, gpus: float) -> None:
        """Count that the job executes on `gpus` devices from `now` on."""
        switch_on(self._cells, row, now, gpus)

    def meters_off(self, row: int, now: float) -> None:
        """Count that the job stops executing at `now`."""
        switch_off(self._cells, row, now)

    def meters(self, row: int, now: float) -> tuple[float, float]:
        """Seconds that one job has executed, and GPU-seconds it has attained."""
        return read_row_meters(self._cells, row, now)

    def release(self, row: int, now: float) -> None:
        """The row as it is once its devices are taken away."""
        self.meters_off(row, now)
        self.allocations[row] = None
        self.set(row, TableColumns.HELD, 0.0)
        self.set(row, TableColumns.STAGE, Stage.PENDING)

    def pick(self, keep: Bools) -> JobTable:
        """A table of some rows only, in the same order."""
        part = JobTable(max(1, int(keep.sum())))
        rows = np.flatnonzero(keep)
        part.size = len(rows)
        part._cells[:, : part.size] = self._cells[:, rows]
        kept = keep.tolist()
        part.jobs = list(compress(self.jobs, kept))
        if self.conditional:
            part.conditional = sum(job.conditional for job in part.jobs)
        part.allocations = list(compress(self.allocations, kept))
        if self.suspended:
            part.suspended = {job.id for job in part.jobs if job.id in self.suspended}
        if self.promised:
            part.promised = {job.id for job in part.jobs if job.id in self.promised}
        part._row_of_seq = part.seq.astype(np.int64).tolist()
        part._known = part._waiting = None  # most parts are never asked for a job by name
        return part


# Numbers that come one after the other and are read together.


class Growing:
    """A float column that grows at the end."""

    def __init__(self, values: Floats | None = None) -> None:
        self._cells: Floats = np.zeros(64) if values is None or not len(values) else values.copy()
        self._size = 0 if values is None else len(values)

    @property
    def values(self) -> Floats:
        return self._cells[: self._size]

    def append(self, value: float) -> None:
        """Append a value at the end."""
        if self._size == len(self._cells):
            self._cells = np.concatenate([self._cells, np.zeros(self._size)])
        self._cells[self._size] = value
        self._size += 1
