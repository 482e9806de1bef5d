"""Goodput as Pollux believes it where GPUs differ: all kinds taken for one.

One step-time model a job, fitted to what it measured on any kind; of two measurements of the
same configuration the first counts (as in the simulator of Sia, SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.core.model import Job, JobId
from weft.core.table import Floats, Table
from weft.perf.goodput.adaptive import table_of
from weft.perf.goodput.model import Limits, Noise, StepTime, best_batch
from weft.perf.goodput.tables import ModelTable

if TYPE_CHECKING:
    from weft.perf.goodput.beliefs import Belief


def blind_goodputs(
    models: Mapping[str, ModelTable],
    known: Mapping[JobId, Belief],
    table: Table,
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    """Rows x shapes, evaluated together; what has not changed is remembered."""
    found = np.full((len(table), len(nodes)), np.nan)
    shapes = (tuple(kinds), nodes.tobytes(), replicas.tobytes())
    stale: list[tuple[int, Job, Belief]] = []
    for row, job in enumerate(table.jobs):
        belief = known.get(job.id)
        if belief is None:
            continue
        if belief.blind is not None and belief.blind_of == (
            belief.version,
            belief.mixed.version,
            *shapes,
        ):
            found[row] = belief.blind
        else:
            stale.append((row, job, belief))
    if stale:
        rows = [row for row, _, _ in stale]
        found[rows] = _evaluate(models, stale, kinds, nodes, replicas)
    for row, _, belief in stale:
        belief.blind, belief.blind_of = (
            found[row].copy(),
            (belief.version, belief.mixed.version, *shapes),
        )
    return found


def _evaluate(
    models: Mapping[str, ModelTable],
    stale: Sequence[tuple[int, Job, Belief]],
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    params, noise, limits = [], [], []
    for _, job, belief in stale:
        model = table_of(models, job)
        params.append(belief.mixed.times())
        noise.append((*belief.noise, model.init_batch))
        limits.append(_limits(model, kinds))
    best = best_batch(
        StepTime(*_columns(params)),
        Noise(*_columns(noise)),
        nodes,
        replicas,
        Limits(*_columns(limits)),
    )
    return np.asarray(best.goodput)


def _columns(rows: Sequence[Sequence[float]]) -> Floats:
    """One column of cases for each parameter."""
    return np.array(rows, dtype=float).T[:, :, None]


def _limits(model: ModelTable, kinds: Sequence[str]) -> tuple[float, float, float]:
    """Batch limits for all kinds: those of the first one that the model was measured on."""
    kind = next((kind for kind in kinds if kind in model.kinds), next(iter(model.kinds)))
    return model.max_batch, model.kinds[kind].min_local, model.kinds[kind].max_local
