"""Goodput of many jobs over many sizes in one evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.base.step_times import StepTime
from weft.core.model.job import Config
from weft.frozen import frozen
from weft.native import compiled
from weft.perf.goodput.model import (
    CANDIDATES,
    CHUNK,
    BatchBounds,
    Candidates,
    Floats,
    SyncCases,
    candidates,
    step_seconds,
)

Ints = NDArray[np.intp]
KEPT = 256  # shapes of jobs


class CurvePart(NamedTuple):
    """Some configurations of a kind; `counts` are their replicas again, to look things up by."""

    column: Ints
    nodes: Floats
    replicas: Floats
    counts: tuple[float, ...]


@frozen
class KindSizes:
    """The configurations of one kind: their columns, nodes and GPUs."""

    column: Ints
    nodes: Floats
    gpus: Floats
    _parts: dict[tuple[float, ...], CurvePart] = field(default_factory=dict, compare=False)

    def within(self, most_gpus: float, most_nodes: float, unit: int) -> CurvePart:
        """Whole replicas, no more than a job may have; remembered, since many may have the same."""
        key = (most_gpus, most_nodes, unit)
        if key not in self._parts:
            chosen = (self.gpus <= most_gpus) & (self.nodes <= most_nodes) & (self.gpus % unit == 0)
            replicas = self.gpus[chosen] / unit
            counts = tuple(replicas.tolist())
            self._parts[key] = CurvePart(self.column[chosen], self.nodes[chosen], replicas, counts)
        return self._parts[key]


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
    limits: BatchBounds
    init: float
    fixed: float
    most: float
    most_nodes: float
    unit: int


class StepShape(NamedTuple):
    """The part of a job's steps that does not depend on step times: its sizes and their cases.

    `counts` are the sizes of each case; `batch` are global batches.
    """

    counts: Sequence[int]
    column: Ints
    init: Floats
    factor: Floats
    batch: Floats
    waits: SyncCases
    looked_at: Candidates


class CandidateSteps(NamedTuple):
    """Global batches and seconds per iteration of one job's candidates, for each of its sizes."""

    column: Ints
    init: Floats
    factor: Floats
    batch: Floats
    took: Floats


Noise = tuple[float, float]  # squared norm and variance of gradients
NO_SIZES = CandidateSteps(np.zeros(0, np.intp), *np.zeros((2, 0)), *np.zeros((2, 0, CANDIDATES)))
NO_BATCHES = Candidates(NO_SIZES.batch, NO_SIZES.batch, np.zeros((0, CANDIDATES), np.bool_))
NO_WAITS = SyncCases.of(NO_SIZES.init, NO_SIZES.init)
NO_SHAPE = StepShape((), *NO_SIZES[:4], NO_WAITS, NO_BATCHES)


@frozen
class Menu:
    """Configurations grouped by kind; shapes of jobs that were worked out are remembered."""

    kinds: Mapping[str, KindSizes]
    _shapes: dict[tuple[object, ...], StepShape] = field(default_factory=dict, compare=False)

    def shape(self, cases: Sequence[Case]) -> StepShape:
        """The sizes of a job, whatever its step times are."""
        key = tuple([(case.kind, *case[2:]) for case in cases])
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= KEPT:
                self._shapes.clear()
            shape = self._shapes[key] = self._find_shape(cases)
        return shape

    def _find_shape(self, cases: Sequence[Case]) -> StepShape:
        parts = [(case, self.kinds[case.kind].within(*_most(case))) for case in cases]
        counts = [len(part.counts) for _, part in parts]
        if not sum(counts):
            return NO_SHAPE
        looked_at = _join(
            [candidates(p.counts, c.init, c.limits, c.fixed) for c, p in parts if p.counts]
        )
        replicas = np.concatenate([part.replicas for _, part in parts])
        return StepShape(
            counts,
            np.concatenate([part.column for _, part in parts]),
            np.repeat([case.init for case in cases], counts),
            np.repeat([case.factor for case in cases], counts),
            replicas[:, None] * looked_at.local * (looked_at.extra + 1.0),
            SyncCases.of(np.concatenate([_nodes(case, part) for case, part in parts]), replicas),
            looked_at,
        )


def by_kind(configs: Sequence[Config]) -> Menu:
    """Configurations grouped by kind."""
    grouped = {}
    for kind in dict.fromkeys(c.kind for c in configs):
        columns = [i for i, c in enumerate(configs) if c.kind == kind]
        grouped[kind] = KindSizes(
            np.array(columns),
            np.array([float(configs[i].nodes) for i in columns]),
            np.array([float(configs[i].gpus) for i in columns]),
        )
    return Menu(grouped)


def work_out(jobs: Sequence[Sequence[Case]], menu: Menu) -> list[CandidateSteps]:
    """The steps of jobs, all together; of each as many cases as kinds that it can run on."""
    shapes = [menu.shape(cases) for cases in jobs]
    known = [(cases, shape) for cases, shape in zip(jobs, shapes, strict=True) if shape.counts]
    if not known:
        return [NO_SIZES] * len(jobs)
    times = np.array([case.times for cases, _ in known for case in cases])
    counts = [count for _, shape in known for count in shape.counts]
    took = _work_out(np.repeat(times, counts, axis=0), [shape for _, shape in known])
    if len(jobs) == 1:
        return [_steps(shapes[0], took)]
    steps, at = [], 0
    for shape in shapes:
        of = slice(at, at + len(shape.column))
        at = of.stop
        own = took[of].copy()  # it is kept for as long as it holds, the others perhaps not
        steps.append(_steps(shape, own))
    return steps


def _steps(shape: StepShape, took: Floats) -> CandidateSteps:
    return CandidateSteps(shape.column, shape.init, shape.factor, shape.batch, took)


def _most(case: Case) -> tuple[float, float, int]:
    return case.most * case.unit, case.most_nodes, case.unit


def _nodes(case: Case, part: CurvePart) -> Floats:
    """Nodes of each size, as the model counts them."""
    if case.factor == 1.0:
        return part.nodes
    return np.ceil(part.replicas * case.source_unit / case.node_gpus)


def _work_out(times: Floats, shapes: Sequence[StepShape]) -> Floats:
    """Seconds an iteration of every candidate of jobs."""
    waits, looked_at = shapes[0].waits, shapes[0].looked_at
    if len(shapes) > 1:
        columns = zip(*(shape.waits for shape in shapes), strict=True)
        waits = SyncCases(*(np.concatenate(column) for column in columns))
        looked_at = _join([shape.looked_at for shape in shapes])
    return step_seconds(times, waits, looked_at)


def _join(parts: Sequence[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def evaluate(jobs: list[tuple[CandidateSteps, Noise]], columns: int) -> Floats:
    """Goodput of each job in each column, 0 where it has no such size."""
    goodputs = np.zeros((len(jobs), columns))
    _fill_goodputs(goodputs, jobs)
    return goodputs


@compiled
def _fill_goodputs(goodputs: Floats, jobs: list[tuple[CandidateSteps, Noise]]) -> None:
    counts = [len(steps.column) for steps, _ in jobs]
    if not sum(counts):
        return
    column, init, factor = (np.concatenate([s[i] for s, _ in jobs]) for i in range(3))
    sqr, var = np.repeat(np.array([noise for _, noise in jobs]), counts, axis=0).T
    least = np.empty(len(column))
    scaled, at = var * init, 0
    row = np.repeat(np.arange(len(jobs)), counts)
    with np.errstate(all="ignore"):  # 0 / 0 and overflows: nothing is known there
        for group in _chunks(jobs):
            batch = np.concatenate([steps.batch for steps, _ in group])
            part = slice(at, at + len(batch))
            below = scaled[part, None] / batch
            below += sqr[part, None]
            below *= np.concatenate([steps.took for steps, _ in group])
            below.min(axis=1, out=least[part])
            at = part.stop
        goodputs[row, column] = init * (var + sqr) / least * factor


def _chunks(
    jobs: Sequence[tuple[CandidateSteps, Noise]],
) -> Iterator[list[tuple[CandidateSteps, Noise]]]:
    """Jobs together until they fill what the processor keeps at hand."""
    group: list[tuple[CandidateSteps, Noise]] = []
    cells = 0
    for job in jobs:
        group.append(job)
        cells += len(job[0].column)
        if cells >= CHUNK:
            yield group
            group, cells = [], 0
    if group:
        yield group
