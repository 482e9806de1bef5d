"""What allocations are worth to jobs: speed-ups over a fair share, restarts, the power mean."""

from __future__ import annotations

from math import ceil

import numpy as np

from weft.core.knowledge.knowledge import Beliefs
from weft.core.state.table import Column, Floats, Table
from weft.frozen import frozen
from weft.policies.pollux.machines import Machines
from weft.solve.genetic import Counts

RESTART_S = 30.0
FLOOR = 1e-3
TIE = 1e-9


@frozen
class Speedups:
    """Rows x (one node, several nodes) x replicas, and bounds on the replicas of each row."""

    values: Floats
    least: Counts
    most: Counts


def speedups(table: Table, beliefs: Beliefs | None, machines: Machines) -> Speedups:
    """Goodput over that of a fair share, taken on one node even where it would not fit.

    A job may have twice what it has run with, but not more than it asks for, nor than there
    are GPUs of the rarest kind.
    """
    gpus = int(machines.capacity.sum())
    fair = ceil(gpus / len(table))
    least = table.column(Column.MIN)
    most = table.column(Column.MAX) if beliefs is None else 2.0 * beliefs.most_run(table)
    most = np.minimum(np.clip(most, 1.0, max(machines.smallest, 1)), table.column(Column.MAX))
    size = int(max(most.max(), least.max()))
    values = np.empty((len(table), 2, size + 1))
    values[:] = np.arange(size + 1) / fair
    if beliefs is not None:
        useful = _read_beliefs(table, beliefs, machines.kinds, fair, values)
        most = np.minimum(most, useful)
    most = np.maximum(most, least)
    return Speedups(values, least.astype(np.float32), most.astype(np.float32))


def _read_beliefs(
    table: Table, beliefs: Beliefs, kinds: tuple[str, ...], fair: int, values: Floats
) -> Floats:
    """Fill in the rows of known jobs; return the most replicas that are of any use to each."""
    size = values.shape[2] - 1
    counts = np.arange(1.0, size + 1.0)
    nodes = np.concatenate([np.ones(size), np.full(size, 2.0), [1.0]])
    replicas = np.concatenate([counts, counts, [float(fair)]])
    goodput = beliefs.blind_goodputs(table, kinds, nodes, replicas)
    known = ~np.isnan(goodput[:, 0])
    curves = goodput[known, :-1].reshape(-1, 2, size)
    base = goodput[known, -1]
    # A fair share too large for the largest batch: the best there is stands for it.
    base = np.where(base > 0.0, base, curves.max(axis=(1, 2), initial=1e-12))
    values[known, :, 1:] = curves / base[:, None, None]
    useful = np.full(len(table), np.inf)
    useful[known] = ((curves > 0.0).any(axis=1) * counts).max(axis=1)
    return useful


def restart_factor(age: Floats, restarts: Floats, seconds: float = RESTART_S) -> Floats:
    """How much of a job's life a restart now would leave for work."""
    return np.maximum(age - restarts * seconds, 0.0) / (age + seconds)


def worth(values: Floats, factor: Floats, scale: float, p: float, tie: float = TIE) -> Floats:
    """What each row adds to the power mean with exponent `p`, kept and changed, to be summed.

    Between states of equal fitness the faster counts for a little more: a job of age 0 is
    worth nothing wherever it starts, but should.
    """
    scaled = values[:, None] * scale
    scaled = np.concatenate([scaled, scaled * factor[:, None, None, None]], axis=1)
    each = np.sign(p) * (scaled + FLOOR) ** p if p else np.log(np.maximum(scaled, FLOOR))
    sums: Floats = each + tie * values[:, None]
    return sums
