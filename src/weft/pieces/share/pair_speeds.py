"""How fast jobs run two by two on the same devices: as measured on the kind, else as predicted.

Jobs of one type (model, size, what they do with a device) are alike: each type is looked up once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.core.knowledge.profile import Profile
from weft.core.model.cluster import Cluster
from weft.core.model.job import Discipline, Job
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.frozen import frozen

NO_TYPE = -1
LEAST_GAIN = 0.05  # of one job's speed: together two must do more than one alone
CONTEXT_GB = 0.5  # what a process holds on a device beside its tensors


@frozen
class PairSpeeds:
    """Speeds of types beside types as parts of their speeds alone: kinds x types x types.

    0 where two may not be together: their memory does not fit, it is unknown, or together they do
    no more than one alone. `types` is of rows, NO_TYPE for jobs that do not share; `asked_only`
    says that pairs were measured on the number of GPUs that jobs ask for, and hold for no other;
    `able` are the rows that may share at all.
    """

    types: Rows
    beside: Floats
    asked_only: bool
    able: Bools

    def find(self, kinds: Rows, rows: Rows, other: Rows) -> Floats:
        """Speeds of `rows` beside rows `other` on kinds; the three are broadcast."""
        speeds: Floats = self.beside[kinds, self.types[rows], self.types[other]]
        return speeds


def read_pair_speeds(view: View, rows: Sequence[int]) -> PairSpeeds:
    """Speeds among these rows, which share only with each other."""
    sharing, types = view.sharing(), np.full(len(view.table), NO_TYPE, dtype=np.intp)
    known: dict[tuple[Profile, str, int], int] = {}
    first: list[int] = []
    for row in rows:
        job = view.job(row)
        key = (sharing.profile(job), job.model, job.demand.gpus)
        if key not in known:
            known[key] = len(known)
            first.append(row)
        types[row] = known[key]
    measured = _read_measured(view, np.array(first, dtype=np.intp))
    beside = _predict(view, [view.job(row) for row in first]) if measured is None else measured
    both = beside * (beside.transpose(0, 2, 1) > 0.0)
    gains = both + both.transpose(0, 2, 1) > 1.0 + LEAST_GAIN
    return PairSpeeds(types, both * gains, measured is not None, types != NO_TYPE)


def _read_measured(view: View, rows: Rows) -> Floats | None:
    """What was measured for these rows two by two; None without measurements."""
    kinds, beliefs, count = view.cluster.kinds, view.believed(), len(rows)
    first, second = np.repeat(rows, count), np.tile(rows, count)
    pairs = beliefs.pairs(view.table, kinds, first, second)
    if pairs is None:
        return None
    alone = beliefs.rates(view.table, kinds)[rows]
    together = pairs[:, :, 0].reshape(count, count, len(kinds))
    parts = np.minimum(together / np.maximum(alone, 1e-12)[:, None, :], 1.0)
    parts = np.where(alone[:, None, :] > 0.0, parts, 0.0)
    speeds: Floats = parts.transpose(2, 0, 1)
    return speeds


def _predict(view: View, jobs: Sequence[Job]) -> Floats:
    """What is believed about jobs two by two, where the memory of both is known and fits."""
    sharing, kinds = view.sharing(), view.cluster.kinds
    table = np.zeros((len(kinds), len(jobs), len(jobs)))
    need = [sharing.profile(job).mem_gb for job in jobs]
    for at, kind in enumerate(kinds):
        room = _device_gb(view.cluster, kind)
        for i, first in enumerate(jobs):
            for j in range(i, len(jobs)):
                if min(need[i], need[j]) <= 0.0 or need[i] + need[j] + 2 * CONTEXT_GB > room:
                    continue
                speeds = sharing.speeds((first, jobs[j]), kind, Discipline.NONE)
                table[at, i, j], table[at, j, i] = speeds
    return table


def _device_gb(cluster: Cluster, kind: str) -> float:
    """Memory of the smallest device of a kind."""
    return min(node.device_gb for node in cluster.nodes if node.kind == kind)
