"""Goodput of many jobs over many sizes in one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.model.job import Config
from weft.frozen import frozen
from weft.perf.goodput.model import (
    CHUNK,
    Candidates,
    Floats,
    Limits,
    StepTime,
    candidates,
    steps_of,
)
from weft.perf.goodput.tables import Source

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


class Steps(NamedTuple):
    """Global batches and seconds an iteration of one job's candidates, and what they hold for."""

    part: Part
    facts: tuple[object, ...]
    batch: Floats
    took: Floats


class Case(NamedTuple):
    """One job on the sizes of one kind: what its steps depend on, and what else changes."""

    part: Part
    times: StepTime
    nodes: Floats
    candidates: Candidates
    memo: dict[str, Steps]
    kind: str
    facts: tuple[object, ...]
    noise: tuple[float, float, float, float, float]


@dataclass(slots=True)
class Sheet:
    """Cases collected job by job and kind by kind, then evaluated together.

    Steps are remembered in the `memo` of a job: most rounds bring it new noise, not new times.
    """

    _cases: list[Case] = field(default_factory=list)

    def add(
        self,
        row: int,
        times: StepTime,
        source: Source,
        factor: float,
        noise: tuple[float, float],
        batches: tuple[float, float],
        sizes: Sizes,
        most: float,
        most_nodes: float,
        unit: int,
        fixed: float,
        memo: dict[str, Steps],
        kind: str,
    ) -> None:
        """One job on the sizes of one kind, by the model of `source`, scaled by `factor`.

        `batches` are the initial and the largest batch size, `most` the replicas it may have,
        `unit` the GPUs of one; `fixed` is the batch of a job that may not choose, else 0.
        """
        part = sizes.within(most * unit, most_nodes, unit)
        if not part.counts:
            return
        init, largest = batches
        limits = Limits(largest, float(source.min_local), float(source.max_local))
        gpus = part.replicas * source.unit
        spread = part.nodes if factor == 1.0 else np.ceil(gpus / source.node_gpus)
        looked_at = candidates(part.counts, init, limits, fixed)
        facts = (times, source.node_gpus, factor == 1.0, init, limits, fixed)
        inputs = (*noise, init, factor, float(row))
        self._cases.append(Case(part, times, spread, looked_at, memo, kind, facts, inputs))

    def evaluate(self, into: Floats) -> None:
        """Write the goodput of every case into its cell."""
        if not self._cases:
            return
        self._remember([case for case in self._cases if not _known(case)])
        steps = [case.memo[case.kind] for case in self._cases]
        column = np.concatenate([case.part.column for case in self._cases])
        inputs = np.array([case.noise for case in self._cases])
        inputs = np.repeat(inputs, [len(case.part.counts) for case in self._cases], axis=0)
        sqr, var, init, factor, row = inputs.T
        least = np.empty(len(column))
        batch = np.concatenate([s.batch for s in steps])
        took = np.concatenate([s.took for s in steps])
        for at in range(0, len(column), CHUNK):
            part = slice(at, at + CHUNK)
            below = (var[part] * init[part])[:, None] / batch[part]
            below += sqr[part, None]
            below *= took[part]
            least[part] = below.min(axis=1)
        with np.errstate(all="ignore"):  # 0 / 0 and overflows: nothing is known there
            into[row.astype(np.intp), column] = init * (var + sqr) / least * factor

    def _remember(self, cases: list[Case]) -> None:
        """Work out the steps of cases that are new, together."""
        if not cases:
            return
        counts = [len(case.part.counts) for case in cases]
        times = np.repeat(np.array([case.times for case in cases]), counts, axis=0).T
        looked_at = [np.concatenate(c) for c in zip(*(c.candidates for c in cases), strict=True)]
        batch, took = steps_of(
            StepTime(*times),
            np.concatenate([case.nodes for case in cases]),
            np.concatenate([case.part.replicas for case in cases]),
            Candidates(*looked_at),
        )
        ends = np.cumsum(counts)[:-1]
        parts = zip(cases, np.split(batch, ends), np.split(took, ends), strict=True)
        for case, its_batch, its_took in parts:
            case.memo[case.kind] = Steps(case.part, case.facts, its_batch, its_took)


def _known(case: Case) -> bool:
    memo = case.memo.get(case.kind)
    return memo is not None and memo.part is case.part and memo.facts == case.facts
