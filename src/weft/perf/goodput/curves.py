"""Goodput of many jobs over many sizes in one evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.model.job import Config
from weft.frozen import frozen
from weft.perf.goodput.model import (
    CANDIDATES,
    CHUNK,
    Candidates,
    Floats,
    Limits,
    StepTime,
    candidates,
    steps_of,
)

Ints = NDArray[np.intp]


class Part(NamedTuple):
    """Some configurations of a kind; `counts` are their replicas again, to look things up by."""

    column: Ints
    nodes: Floats
    replicas: Floats
    counts: tuple[float, ...]


@frozen
class Sizes:
    """The configurations of one kind: their columns, nodes and GPUs."""

    column: Ints
    nodes: Floats
    gpus: Floats
    _parts: dict[tuple[float, ...], Part] = field(default_factory=dict, compare=False)

    def within(self, most_gpus: float, most_nodes: float, unit: int) -> Part:
        """Whole replicas, no more than a job may have; remembered, since many may have the same."""
        key = (most_gpus, most_nodes, unit)
        if key not in self._parts:
            chosen = (self.gpus <= most_gpus) & (self.nodes <= most_nodes) & (self.gpus % unit == 0)
            replicas = self.gpus[chosen] / unit
            counts = tuple(replicas.tolist())
            self._parts[key] = Part(self.column[chosen], self.nodes[chosen], replicas, counts)
        return self._parts[key]


def by_kind(configs: Sequence[Config]) -> dict[str, Sizes]:
    """Configurations grouped by kind."""
    grouped = {}
    for kind in dict.fromkeys(c.kind for c in configs):
        columns = [i for i, c in enumerate(configs) if c.kind == kind]
        grouped[kind] = Sizes(
            np.array(columns),
            np.array([float(configs[i].nodes) for i in columns]),
            np.array([float(configs[i].gpus) for i in columns]),
        )
    return grouped


class Case(NamedTuple):
    """One job on the sizes of one kind: all that its steps depend on.

    `times` is the model of the kind it was fitted on, of which `node_gpus` and `source_unit` are;
    `factor` scales it. `init` is the initial batch, `fixed` that of a job that may not choose, else
    0; `most` are the replicas it may have, of `unit` GPUs each.
    """

    kind: str
    times: StepTime
    node_gpus: int
    source_unit: int
    factor: float
    limits: Limits
    init: float
    fixed: float
    most: float
    most_nodes: float
    unit: int


class Steps(NamedTuple):
    """Global batches and seconds per iteration of one job's candidates, for each of its sizes."""

    column: Ints
    init: Floats
    factor: Floats
    batch: Floats
    took: Floats


Noise = tuple[float, float]  # squared norm and variance of gradients
NO_SIZES = Steps(np.zeros(0, np.intp), *np.zeros((2, 0)), *np.zeros((2, 0, CANDIDATES)))


def work_out(jobs: Sequence[Sequence[Case]], sizes: Mapping[str, Sizes]) -> list[Steps]:
    """The steps of jobs, all together; of each as many cases as kinds that it can run on."""
    rows = [[(case, sizes[case.kind].within(*_most(case))) for case in cases] for cases in jobs]
    rows = [[(case, part) for case, part in row if part.counts] for row in rows]
    cases = [pair for row in rows for pair in row]
    if not cases:
        return [NO_SIZES] * len(jobs)
    counts = [len(part.counts) for _, part in cases]
    looked_at = [candidates(part.counts, c.init, c.limits, c.fixed) for c, part in cases]
    inputs = np.array([(*case.times, case.init, case.factor) for case, _ in cases])
    *times, init, factor = np.repeat(inputs, counts, axis=0).T
    batch, took = steps_of(
        StepTime(*times),
        np.concatenate([_nodes(case, part) for case, part in cases]),
        np.concatenate([part.replicas for _, part in cases]),
        Candidates(*(np.concatenate(c) for c in zip(*looked_at, strict=True))),
    )
    column = np.concatenate([part.column for _, part in cases])
    ends = np.cumsum([sum(len(part.counts) for _, part in row) for row in rows]).tolist()
    parts = (slice(start, end) for start, end in zip([0, *ends], ends, strict=False))
    return [
        Steps(column[p], init[p].copy(), factor[p].copy(), batch[p].copy(), took[p].copy())
        for p in parts  # copies, since each job keeps its own for as long as it holds
    ]


def _most(case: Case) -> tuple[float, float, int]:
    return case.most * case.unit, case.most_nodes, case.unit


def _nodes(case: Case, part: Part) -> Floats:
    """Nodes of each size, as the model counts them."""
    if case.factor == 1.0:
        return part.nodes
    return np.ceil(part.replicas * case.source_unit / case.node_gpus)


def evaluate(jobs: Sequence[tuple[Steps, Noise]], columns: int) -> Floats:
    """Goodput of each job in each column, 0 where it has no such size."""
    goodputs = np.zeros((len(jobs), columns))
    counts = [len(steps.column) for steps, _ in jobs]
    if not sum(counts):
        return goodputs
    column, init, factor = (np.concatenate([s[i] for s, _ in jobs]) for i in range(3))
    sqr, var = np.repeat(np.array([noise for _, noise in jobs]), counts, axis=0).T
    least = np.empty(len(column))
    scaled, at = var * init, 0
    for group in _chunks(jobs):
        batch = np.concatenate([steps.batch for steps, _ in group])
        part = slice(at, at + len(batch))
        below = scaled[part, None] / batch
        below += sqr[part, None]
        below *= np.concatenate([steps.took for steps, _ in group])
        below.min(axis=1, out=least[part])
        at = part.stop
    row = np.repeat(np.arange(len(jobs)), counts)
    with np.errstate(all="ignore"):  # 0 / 0 and overflows: nothing is known there
        goodputs[row, column] = init * (var + sqr) / least * factor
    return goodputs


def _chunks(jobs: Sequence[tuple[Steps, Noise]]) -> Iterator[list[tuple[Steps, Noise]]]:
    """Jobs together until they fill what the processor keeps at hand."""
    group: list[tuple[Steps, Noise]] = []
    cells = 0
    for job in jobs:
        group.append(job)
        cells += len(job[0].column)
        if cells >= CHUNK:
            yield group
            group, cells = [], 0
    if group:
        yield group
