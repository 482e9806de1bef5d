"""Predictions for all rows of a table at once.

Jobs that have not run yet differ by their groups alone, so they are asked for by chain of groups,
and what was found is kept until the next end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from weft.core.knowledge.prediction import LEAST_S
from weft.core.model.job import Job
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, JobTable
from weft.predict.alike.mixture import (
    NOBODY,
    Blend,
    Block,
    Ids,
    Lookup,
    WeightedLengths,
    index_of_one,
)
from weft.predict.alike.rings import Rings
from weft.predict.traits import GROUPS, Key, TraitGroup, levels_of

Ask = Callable[[Blend], Floats]
FEW = 8  # chains that are sooner asked for one by one
MOST_GROUPS = 400_000  # that were asked for: then all that is derived is dropped and made again


class TablePredictions:
    """Everything here follows from the rings: it is neither saved nor copied."""

    def __init__(
        self, rings: Rings, sample: Callable[[Key], WeightedLengths | None], shrink: float
    ) -> None:
        self._rings, self._sample, self._shrink = rings, sample, shrink
        self._begin()

    def _begin(self) -> None:
        self._lookup = Lookup()
        self._rows = ChainRows(self._lookup)
        self._kept: dict[Hashable, tuple[Floats, Floats]] = {}

    def forget(self, job: Job) -> None:
        self._rows.forget(job)
        if len(self._lookup) > MOST_GROUPS:
            self._begin()

    def blend(self, table: JobTable, now: float) -> tuple[Blend, GroupChains, Floats]:
        """Of every row, with its groups and what it has executed."""
        groups, attained = self._look_at(table, now)
        ids = groups.chains[groups.of_row]
        return Blend(self._lookup, ids, attained, self._shrink), groups, attained

    def each(self, table: JobTable, now: float, what: Hashable, ask: Ask, state: int) -> Floats:
        """Rows x answers of `ask`; `what` names the question, `state` the time of what was kept."""
        groups, attained = self._look_at(table, now)
        fresh: Bools = attained <= 0.0
        values = self._of_chains(groups, fresh, what, ask, state)
        answers = values[groups.of_row]
        if not fresh.all():
            ids = groups.chains[groups.of_row[~fresh]]
            answers[~fresh] = ask(Blend(self._lookup, ids, attained[~fresh], self._shrink))
        room = (groups.limits_s - attained)[:, None]
        return np.minimum(answers, room) if np.isfinite(room).any() else answers

    def mean_of_first(self, table: JobTable, now: float) -> Floats:
        """Return the mean seconds of similar rows that have not run; infinite for the others."""
        groups, attained = self._look_at(table, now)
        fresh: Bools = attained <= 0.0
        chains, where, counts = np.unique(
            groups.of_row[fresh], return_inverse=True, return_counts=True
        )
        means = np.full(len(table), np.inf)
        if len(chains):
            blend = Blend(self._lookup, groups.chains[chains], np.zeros(len(chains)), self._shrink)
            means[fresh] = blend.mean_of_many(counts.astype(float))[where]
        return means

    def index_at(self, table: JobTable, attained: Floats) -> Floats:
        """The index of each row when it has executed for so long, rows x times."""
        groups = self._groups_of(table)
        first, where = _find_alike(np.column_stack([groups.of_row, attained]))
        chains = groups.chains[groups.of_row[first]]
        chains = chains[:, (chains != NOBODY).any(axis=0)]
        index = self._index_of(chains, attained[first])[where]
        # By its time limit a job ends.
        return np.maximum(index, 1.0 / np.maximum(groups.limits_s[:, None] - attained, LEAST_S))

    def _index_of(self, chains: Ids, ages: Floats) -> Floats:
        if len(chains) <= FEW:
            blocks = [[self._lookup.cells(i) for i in chain] for chain in chains.tolist()]
            index = [index_of_one(*block, self._shrink) for block in zip(blocks, ages, strict=True)]
            return np.array(index).reshape(ages.shape)
        ids = np.repeat(chains, ages.shape[1], axis=0)
        blended = Blend(self._lookup, ids, ages.ravel(), self._shrink).index()
        return blended.reshape(ages.shape)

    def group_samples(self, levels: Sequence[TraitGroup]) -> list[Block]:
        """Return the samples of each of these groups, in order."""
        for level in levels:
            self._lookup.number(level.key)
        self._lookup.refresh(self._rings.changed, self._sample)
        return [self._lookup.block(level.key) for level in levels]

    def _groups_of(self, table: JobTable) -> GroupChains:
        groups = self._rows.of(table)
        self._lookup.refresh(self._rings.changed, self._sample)
        return groups

    def _look_at(self, table: JobTable, now: float) -> tuple[GroupChains, Floats]:
        """Groups of the rows, and seconds that each has executed on what it asked for."""
        groups = self._groups_of(table)
        served, need = table.service(now), table.need
        attained = np.where(served > 0.0, served / np.maximum(need, 1e-9), table.ran(now))
        return groups, np.maximum(attained, 0.0)

    def _of_chains(
        self, groups: GroupChains, fresh: Bools, what: Hashable, ask: Ask, state: int
    ) -> Floats:
        """Answers of chains before their first second, worked out where something changed."""
        count = len(groups.chains)
        stamps, values = self._kept.get(what, (np.zeros(0), np.zeros((0, 0))))
        if len(stamps) < count:  # one chain tells how many numbers an answer has
            first = ask(Blend(self._lookup, groups.chains[:1], np.zeros(1), self._shrink))
            stamps, values = np.full(count, -1.0), np.zeros((count, first.shape[1]))
        used = np.zeros(count, dtype=bool)
        used[groups.of_row[fresh]] = True
        stale = np.flatnonzero(used & (stamps != state))
        if len(stale):
            blend = Blend(self._lookup, groups.chains[stale], np.zeros(len(stale)), self._shrink)
            values[stale], stamps[stale] = ask(blend), state
        self._kept[what] = (stamps, values)
        return values


def _find_alike(rows: Floats) -> tuple[Ids, Ids]:
    """The rows that are the first of their kind, and for each row the one that it is like."""
    seen: dict[bytes, int] = {}
    whole = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    where = np.array([seen.setdefault(row, len(seen)) for row in whole], dtype=np.intp)
    first = np.zeros(len(seen), dtype=np.intp)
    first[where[::-1]] = np.arange(len(where))[::-1]
    return first, where


# ---- which groups the rows of a table belong to: found once per job, then read by number


class GroupChains(NamedTuple):
    """Chains of groups: of each row its number, and of each number its groups, narrowest first.

    `limits_s` are time limits, infinite where a row has none.
    """

    of_row: Ids
    chains: Ids
    limits_s: Floats


class ChainRows:
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

    def of(self, table: JobTable) -> GroupChains:
        seq = table.seq.astype(np.intp)
        if len(seq) and seq[-1] >= len(self._of_seq):
            self._grow(int(seq[-1]) + 1)
        addresses = np.fromiter(map(id, table.jobs), np.intp, len(table))
        for row in np.flatnonzero(self._seen[seq] != addresses).tolist():
            self._note(int(seq[row]), table.jobs[row])
        return GroupChains(self._of_seq[seq], self._chains, self._limits[seq])

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
        seq = self._seq_of.pop(id(job), None)
        if seq is not None:
            del self._jobs[seq]
            self._seen[seq] = 0

    def _grow(self, size: int) -> None:
        more = max(size, 2 * len(self._of_seq)) - len(self._of_seq)
        self._of_seq = np.concatenate([self._of_seq, np.zeros(more, dtype=np.intp)])
        self._seen = np.concatenate([self._seen, np.zeros(more, dtype=np.intp)])
        self._limits = np.concatenate([self._limits, np.full(more, np.inf)])
