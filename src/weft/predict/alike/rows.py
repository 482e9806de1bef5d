"""Which groups the rows of a table belong to: found once per job, then read by number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weft.core.model.job import Job
from weft.core.state.table import Floats, Table
from weft.predict.alike.lookup import NOBODY, Ids, Lookup
from weft.predict.traits import GROUPS, levels_of


class Groups(NamedTuple):
    """Chains of groups: of each row its number, and of each number its groups, narrowest first.

    `limits_s` are time limits, infinite where a row has none.
    """

    of_row: Ids
    chains: Ids
    limits_s: Floats


class Rows:
    """Chains by order of submission; a job that was replaced by another is looked at again."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._numbers: dict[tuple[int, ...], int] = {}
        self._chains: Ids = np.zeros((64, len(GROUPS)), dtype=np.intp)
        self._of_seq: Ids = np.zeros(64, dtype=np.intp)
        self._seen: Ids = np.zeros(64, dtype=np.intp)
        self._limits: Floats = np.full(64, np.inf)
        self._jobs: dict[int, Job] = {}  # held, so that no other job can have its address
        self._seq_of: dict[int, int] = {}

    def of(self, table: Table) -> Groups:
        """The chains of a table's rows."""
        seq = table.seq.astype(np.intp)
        if len(seq) and seq[-1] >= len(self._of_seq):
            self._grow(int(seq[-1]) + 1)
        addresses = np.fromiter(map(id, table.jobs), np.intp, len(table))
        for row in np.flatnonzero(self._seen[seq] != addresses).tolist():
            self._note(int(seq[row]), table.jobs[row])
        return Groups(self._of_seq[seq], self._chains, self._limits[seq])

    def chain(self, job: Job) -> int:
        """The number of a job's chain."""
        ids = [NOBODY] * len(GROUPS)
        for level in levels_of(job):
            ids[level.position] = self._lookup.number(level.key)
        number = self._numbers.setdefault(tuple(ids), len(self._numbers))
        if number >= len(self._chains):
            self._chains = np.concatenate([self._chains, np.zeros_like(self._chains)])
        self._chains[number] = ids
        return number

    def _note(self, seq: int, job: Job) -> None:
        self._of_seq[seq], self._seen[seq] = self.chain(job), id(job)
        limit_s = job.launch.time_limit_s if job.launch is not None else 0.0
        self._limits[seq] = limit_s or np.inf
        if seq in self._jobs:
            self._seq_of.pop(id(self._jobs[seq]), None)
        self._jobs[seq], self._seq_of[id(job)] = job, seq

    def forget(self, job: Job) -> None:
        """A job has left."""
        seq = self._seq_of.pop(id(job), None)
        if seq is not None:
            del self._jobs[seq]
            self._seen[seq] = 0

    def _grow(self, size: int) -> None:
        more = max(size, 2 * len(self._of_seq)) - len(self._of_seq)
        self._of_seq = np.concatenate([self._of_seq, np.zeros(more, dtype=np.intp)])
        self._seen = np.concatenate([self._seen, np.zeros(more, dtype=np.intp)])
        self._limits = np.concatenate([self._limits, np.full(more, np.inf)])
