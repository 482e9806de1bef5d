"""Active jobs as columns, rows in order of submission.

One matrix of float64 holds every column, so that removing a row is one move of memory and a
column is a contiguous view. Columns are read-only to policies.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from weft.core.model import Allocation, Job, JobId, Stage

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

COLUMNS = (
    "seq",
    "submitted",
    "gpus",
    "min",
    "max",
    "need",
    "priority",
    "tier",
    "stage",
    "attempt",
    "held",
    "ran_base",
    "ran_rate",
    "ran_since",
    "service_base",
    "service_rate",
    "service_since",
    "started",
    "retries",
    "reported",
    "preemptible",
    "failed",
)
INDEX = {name: i for i, name in enumerate(COLUMNS)}


class Table:
    """The columns, and beside them the job and the allocation of each row.

    `need` is GPUs asked for, fractions counted as such; `held` is GPUs promised now; `started`
    is when a job first ran, infinite before; `failed` is when an attempt last died. `ran` and
    `service` are linear meters of seconds executed and GPU-seconds attained.
    """

    __slots__ = ("_cells", "_known", "_row_of_seq", "allocations", "jobs", "size")

    def __init__(self, capacity: int = 64) -> None:
        self._cells: Floats = np.zeros((len(COLUMNS), capacity))
        self._row_of_seq: list[int] = []
        self._known: dict[JobId, int] | None = {}
        self.size = 0
        self.jobs: list[Job] = []
        self.allocations: list[Allocation | None] = []

    def __len__(self) -> int:
        return self.size

    def __contains__(self, job: object) -> bool:
        return job in self._seq_of

    @property
    def _seq_of(self) -> dict[JobId, int]:
        if self._known is None:
            ids = (job.id for job in self.jobs)
            self._known = dict(zip(ids, self._row_of_seq, strict=True))
        return self._known

    def column(self, name: str) -> Floats:
        """A column by name."""
        return self._cells[INDEX[name], : self.size]

    # The columns policies read most, under their own names.
    @property
    def seq(self) -> Floats:
        """Order of submission; unique and never reused."""
        return self._cells[0, : self.size]

    @property
    def submitted(self) -> Floats:
        """Submission times."""
        return self._cells[1, : self.size]

    @property
    def gpus(self) -> Floats:
        """Devices asked for."""
        return self._cells[2, : self.size]

    @property
    def need(self) -> Floats:
        """GPUs asked for, a fraction of a device counted as that fraction."""
        return self._cells[5, : self.size]

    @property
    def held(self) -> Floats:
        """Devices promised now; 0 for a waiting job."""
        return self._cells[10, : self.size]

    @property
    def started(self) -> Floats:
        """When each job first ran; infinite before."""
        return self._cells[17, : self.size]

    def ran(self, now: float) -> Floats:
        """Seconds each job has executed."""
        c, n = self._cells, self.size
        return c[11, :n] + c[12, :n] * (now - c[13, :n])

    def service(self, now: float) -> Floats:
        """GPU-seconds each job has attained."""
        c, n = self._cells, self.size
        return c[14, :n] + c[15, :n] * (now - c[16, :n])

    def row(self, job: JobId) -> int:
        """The row of a job; rows move when earlier jobs leave."""
        return bisect_left(self._row_of_seq, self._seq_of[job])

    def add(self, job: Job, seq: int) -> int:
        """Append a job at the end and return its row."""
        n = self.size
        if n == self._cells.shape[1]:
            grown = np.zeros((len(COLUMNS), 2 * n))
            grown[:, :n] = self._cells
            self._cells = grown
        demand = job.demand
        self._cells[:, n] = (
            seq,
            job.submitted,
            demand.gpus,
            demand.min,
            demand.max,
            demand.gpus * demand.share,
            job.priority,
            job.tier,
            Stage.PENDING,
            *(0.0,) * 8,
            np.inf,
            0.0,
            0.0,
            job.preemptible,
            0.0,
        )
        self._seq_of[job.id] = seq
        self._row_of_seq.append(seq)
        self.jobs.append(job)
        self.allocations.append(None)
        self.size = n + 1
        return n

    def remove(self, row: int) -> None:
        """Close the gap that a job leaves."""
        n = self.size
        if row < n - 1:
            self._cells[:, row : n - 1] = self._cells[:, row + 1 : n]
        del self._seq_of[self.jobs[row].id]
        del self._row_of_seq[row]
        del self.jobs[row]
        del self.allocations[row]
        self.size = n - 1

    def get(self, row: int, name: str) -> float:
        """One cell."""
        return float(self._cells[INDEX[name], row])

    def set(self, row: int, name: str, value: float) -> None:
        """Write one cell; only the state does this."""
        self._cells[INDEX[name], row] = value

    def meters_on(self, row: int, now: float, gpus: float) -> None:
        """From `now` on the job executes on `gpus` devices."""
        c = self._cells
        c[12, row], c[13, row] = 1.0, now
        c[15, row], c[16, row] = gpus, now
        if c[17, row] == np.inf:
            c[17, row] = now

    def meters_off(self, row: int, now: float) -> None:
        """The job stops executing at `now`."""
        c = self._cells
        if c[12, row]:
            c[11, row] += c[12, row] * (now - c[13, row])
            c[14, row] += c[15, row] * (now - c[16, row])
            c[12, row] = c[15, row] = 0.0
        c[13, row] = c[16, row] = now

    def pick(self, keep: Bools) -> Table:
        """A table of some rows only, in the same order."""
        part = Table(max(1, int(keep.sum())))
        rows = np.flatnonzero(keep)
        part.size = len(rows)
        part._cells[:, : part.size] = self._cells[:, rows]
        kept = keep.tolist()
        part.jobs = list(compress(self.jobs, kept))
        part.allocations = list(compress(self.allocations, kept))
        part._row_of_seq = part.seq.astype(np.int64).tolist()
        part._known = None  # most parts are never asked for a job by name
        return part
