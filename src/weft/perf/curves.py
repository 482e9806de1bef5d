"""Goodput of many jobs over many sizes in one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.core.model import Config
from weft.perf.goodput import Candidates, Floats, Limits, Noise, StepTime, best_of, candidates
from weft.perf.tables import Speeds

Ints = NDArray[np.intp]


class Part(NamedTuple):
    """Some configurations of a kind; `counts` are their replicas again, to look things up by."""

    column: Ints
    nodes: Floats
    replicas: Floats
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
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


@dataclass(slots=True)
class Sheet:
    """Cases collected job by job and kind by kind, then evaluated together."""

    _facts: list[tuple[float, ...]] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _nodes: list[Floats] = field(default_factory=list)
    _candidates: list[Candidates] = field(default_factory=list)

    def add(
        self,
        row: int,
        times: StepTime,
        source: Speeds,
        factor: float,
        noise: tuple[float, float],
        batches: tuple[float, float],
        sizes: Sizes,
        most: float,
        most_nodes: float,
        unit: int,
        fixed: float,
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
        self._facts.append((*times, *noise, init, factor, float(row)))
        self._parts.append(part)
        gpus = part.replicas * source.unit
        spread = part.nodes if factor == 1.0 else np.ceil(gpus / source.node_gpus)
        self._nodes.append(spread)
        self._candidates.append(candidates(part.counts, init, limits, fixed))

    def evaluate(self, into: Floats) -> None:
        """Write the goodput of every case into its cell."""
        if not self._facts:
            return
        column, _, replicas, counts = zip(*self._parts, strict=True)
        facts = np.repeat(np.array(self._facts), [len(c) for c in counts], axis=0).T
        looked_at = Candidates(*(np.concatenate(c) for c in zip(*self._candidates, strict=True)))
        best = best_of(
            StepTime(*facts[:7]),
            Noise(*facts[7:10]),
            np.concatenate(self._nodes),
            np.concatenate(replicas),
            looked_at,
        )
        into[facts[11].astype(np.intp), np.concatenate(column)] = best.goodput * facts[10]
