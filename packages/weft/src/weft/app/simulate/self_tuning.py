"""The fastest that jobs that tune their batch can be, whatever they tune it to: for bounds.

How much faster a job is on one choice of GPUs than on another changes as it trains. Progress is
counted in seconds of the fastest choice of each epoch, and a choice is as fast as it ever is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

import numpy as np

from weft.bounds.average import Option
from weft.core.errors import InvalidConfig
from weft.core.model.job import Demand, Job
from weft.core.state.cells import Floats
from weft.perf.goodput.adaptive import table_of
from weft.perf.goodput.shipped import FittedKind
from weft.perf.goodput.tables import KindModel, KindTable, ModelTable


class SelfTuning:
    """The ways to run jobs of these models on a cluster, looked up once for jobs alike."""

    def __init__(self, models: Mapping[str, ModelTable], gpus: Mapping[str, int]) -> None:
        self._models, self._gpus = models, gpus
        self._options: dict[tuple[str, Demand, int], tuple[Option, ...]] = {}

    def options(self, job: Job) -> tuple[Option, ...]:
        """All kinds and sizes of a job, with the least seconds that it could take on each."""
        table = table_of(self._models, job)
        most = max(table.max_batch, int(job.hints.get("batch", 0)))
        alike = (job.model, job.demand, most)
        if alike not in self._options:
            self._options[alike] = tuple(self._find(table, job.demand, most))
        return self._options[alike]

    def _find(self, table: ModelTable, demand: Demand, most: int) -> Iterator[Option]:
        choices = [
            (kind, size, least_seconds(table, kind, size, most))
            for kind in demand.kinds or self._gpus
            if kind in table.kinds
            for size in range(demand.min, min(demand.max, self._gpus.get(kind, 0)) + 1)
        ]
        if not choices:
            return
        fastest = np.minimum.reduce([seconds for _, _, seconds in choices])
        whole = float((fastest - rounded_away(fastest)).sum())
        for kind, size, seconds in choices:
            yield kind, size * demand.share, whole * float((seconds / fastest).min())


def rounded_away(seconds: Floats) -> Floats:
    """Seconds by which simulated epochs may end early, as they end on whole seconds.

    What is left of an epoch, k and a half seconds, may count as k, and again whenever its job looks
    at itself; half a second or less counts as none.
    """
    return np.minimum(seconds, 0.5 + 0.5 * np.log(seconds + 1.5))


def least_seconds(table: ModelTable, kind: str, gpus: int, most: int) -> Floats:
    """The least seconds of each epoch on that many GPUs, with a batch of at most `most`."""
    own = table.kinds[kind]
    if own.unit > 1:
        raise InvalidConfig(f"no bound: {table.name} is trained in pipelines")
    each = np.arange(1.0, ceil(most / gpus) + 1.0)  # samples per GPU and update
    took = update_seconds(own, gpus, each) * table.slowdown
    batch = gpus * each
    speed = [
        ((var + sqr) / (var / (batch / table.init_batch) + sqr) / took).max()
        for sqr, var in (_noise(table, epoch, batch) for epoch in range(table.epochs))
    ]
    return np.asarray(np.diff(table.ends, prepend=0.0) / np.array(speed))


def _noise(table: ModelTable, epoch: int, batch: Floats) -> tuple[Floats, Floats]:
    sqr, var = np.array(table.stats[epoch]).T
    return np.interp(batch, table.batches, sqr), np.interp(batch, table.batches, var)


def update_seconds(own: KindModel, gpus: int, each: Floats) -> Floats:
    """The least seconds of an update by samples per GPU, 1, 2 and so on.

    They may be split over several steps, all but the last without synchronisation: a sample then
    takes at least what it takes where steps are best.
    """
    least = np.full(len(each), np.inf)
    for step, grad in _placed(own, gpus, each):
        local = each[: len(step)]
        least[: len(step)] = np.minimum(least[: len(step)], step)
        sample = float((grad / local).min())
        split = np.minimum.accumulate(step - local * sample)
        last = np.minimum(np.arange(len(each)), len(step) - 1)
        least = np.minimum(least, split[last] + each * sample)
    return least


def _placed(own: KindModel, gpus: int, each: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Seconds of a step, and of one without synchronisation, by samples per GPU and placement."""
    if isinstance(own, FittedKind):
        local = each[: own.max_local]
        for nodes in (1, 2):
            step = np.asarray(own.step_time.step(nodes, gpus, local), dtype=float)
            yield step, np.asarray(own.step_time.grad(local), dtype=float)
        return
    assert isinstance(own, KindTable)
    exact = [curve for name, curve in own.placements.items() if sum(map(int, name)) == gpus]
    exact += [curve for (_, count), curve in own.shapes.items() if count == gpus]
    for curve in exact:
        local = each[: int(curve[0][-1])]
        alone = np.interp(local, curve[0], curve[1])
        yield alone, alone - np.interp(local, curve[0], curve[2])
    known = sorted({1.0, *(size for curve in own.shapes.values() for size in curve[0])})
    for nodes in range(ceil(gpus / own.node_gpus), min(gpus, own.max_nodes) + 1):
        if (nodes, gpus) not in own.shapes:
            placement = tuple(gpus // nodes + (node < gpus % nodes) for node in range(nodes))
            times = np.array([own.times(placement, size) for size in known])
            local = each[: own.largest_local(placement)]
            alone = np.interp(local, known, times[:, 0])
            yield alone, alone - np.interp(local, known, times[:, 1])
