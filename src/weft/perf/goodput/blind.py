"""Goodput as Pollux believes it where GPUs differ: all kinds taken for one.

One step-time model a job, fitted to what it measured on any kind; of two measurements of the
same configuration the first counts (as in the simulator of Sia, SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.core.model.job import Job, JobId
from weft.core.state.table import Floats, Table
from weft.perf.goodput.belief import Belief
from weft.perf.goodput.facts import Facts
from weft.perf.goodput.model import Limits, Noise, StepTime, best_batch


def blind_goodputs(
    facts: Facts,
    known: Mapping[JobId, Belief],
    table: Table,
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    """Rows x shapes, evaluated together; what has not changed is remembered."""
    goodputs = np.full((len(table), len(nodes)), np.nan)
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
            goodputs[row] = belief.blind
        else:
            stale.append((row, job, belief))
    if stale:
        rows = [row for row, _, _ in stale]
        goodputs[rows] = _evaluate(facts, stale, kinds, nodes, replicas)
    for row, _, belief in stale:
        belief.blind, belief.blind_of = (
            goodputs[row].copy(),
            (belief.version, belief.mixed.version, *shapes),
        )
    return goodputs


def _evaluate(
    facts: Facts,
    stale: Sequence[tuple[int, Job, Belief]],
    kinds: Sequence[str],
    nodes: Floats,
    replicas: Floats,
) -> Floats:
    params, noise, limits = [], [], []
    for _, job, belief in stale:
        init, *bounds = facts.blind(job, belief.batch, kinds)
        params.append(belief.mixed.times())
        noise.append((*belief.noise, init))
        limits.append(bounds)
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
