"""What the scheduler believes about adaptive jobs, fitted from what they report.

One step-time model a GPU kind and one pair of gradient statistics a job. A kind that a job has
not run on yet borrows the model of one it has, scaled by single-GPU speeds (Sia, SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from weft.core.model import Config, Job, JobId
from weft.core.table import Floats, Table
from weft.perf.adaptive import table_of
from weft.perf.blind import blind_goodputs
from weft.perf.fit import Row, fit
from weft.perf.goodput import Limits, Noise, StepTime, best_batch
from weft.perf.tables import KindTable, ModelTable


@dataclass(slots=True)
class Belief:
    """What is known of one job."""

    rows: dict[str, dict[tuple[int, int, int], Row]] = field(default_factory=dict)
    noise: tuple[float, float] = (0.0, 0.0)
    most: int = 0
    version: int = 0
    curve: Floats | None = None
    curve_of: tuple[object, ...] = ()
    mixed: dict[tuple[int, int, int], Row] = field(default_factory=dict)
    blind: Floats | None = None
    blind_of: tuple[object, ...] = ()


class FittedBeliefs:
    """Beliefs about jobs whose models have tables of facts: batch limits and one-GPU speeds.

    `cap_batch` limits the batch to the one a job was submitted with, as the authors' simulator
    does when it asks for goodput.
    """

    def __init__(self, models: Mapping[str, ModelTable], *, cap_batch: bool = False) -> None:
        self._models = models
        self._cap_batch = cap_batch
        self._known: dict[JobId, Belief] = {}

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """Take in a report: a step time if it is of a new configuration, and the noise."""
        belief = self._known.setdefault(job.id, Belief())
        noise = (values["sqr"], values["var"])
        key = (int(values["nodes"]), int(values["replicas"]), int(values["local"]))
        seen = belief.rows.setdefault(kind, {})
        if key not in seen:
            seen[key] = Row(*key, values["grad_s"], values["step_s"])
            belief.mixed.setdefault(key, seen[key])
        elif noise == belief.noise:
            return
        belief.noise = noise
        belief.most = max(belief.most, key[1])
        belief.version += 1

    def forget(self, job: Job) -> None:
        """A job has left."""
        self._known.pop(job.id, None)

    def most_run(self, table: Table) -> Floats:
        """The most replicas each row has run with."""
        empty = Belief()
        return np.array([float(self._known.get(j.id, empty).most) for j in table.jobs])

    def restart_s(self, table: Table) -> Floats:
        """What a restart of each row's model is assumed to cost."""
        return np.array([table_of(self._models, j).assumed_restart_s for j in table.jobs])

    def rates(self, table: Table, kinds: Sequence[str]) -> Floats:
        """Iterations a second of each row at the size and batch it was submitted with."""
        found = np.zeros((len(table), len(kinds)))
        for row, job in enumerate(table.jobs):
            model = table_of(self._models, job)
            for column, kind in enumerate(kinds):
                if kind in model.kinds:
                    found[row, column] = tuned_rate(model, model.kinds[kind], job)
        return found

    def goodputs(self, table: Table, configs: Sequence[Config]) -> Floats:
        """Rows x configurations, evaluated together; what has not changed is remembered."""
        found = np.full((len(table), len(configs)), np.nan)
        which = tuple(configs)
        stale: list[tuple[int, Job, Belief]] = []
        for row, job in enumerate(table.jobs):
            belief = self._known.get(job.id)
            if belief is None:
                continue
            if belief.curve is not None and belief.curve_of == (belief.version, which):
                found[row] = belief.curve
            else:
                stale.append((row, job, belief))
        if stale:
            self._evaluate(stale, which, found)
        return found

    def blind_goodputs(
        self, table: Table, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """Rows x shapes, by one model a job over what it measured on all kinds."""
        return blind_goodputs(self._models, self._known, table, kinds, nodes, replicas)

    def _evaluate(
        self, stale: list[tuple[int, Job, Belief]], configs: tuple[Config, ...], found: Floats
    ) -> None:
        cases = [
            (*self._source(job, belief, kind), row, belief, job, kind)
            for row, job, belief in stale
            for kind in dict.fromkeys(c.kind for c in configs)
        ]
        params, limits, nodes, replicas, noise, factor, cells = [], [], [], [], [], [], []
        for times, source, ratio, row, belief, job, kind in cases:
            if times is None:
                continue
            model = table_of(self._models, job)
            cap = job.hints.get("batch", model.max_batch) if self._cap_batch else model.max_batch
            most = min(max(2 * belief.most, 1), model.max_batch // source.min_local)
            for column, config in enumerate(configs):
                if config.kind != kind or config.gpus > most:
                    continue
                if config.nodes > model.kinds[kind].max_nodes:
                    continue
                params.append(times)
                limits.append((cap, source.min_local, source.max_local))
                spread = ceil(config.gpus / source.node_gpus)
                nodes.append(config.nodes if ratio == 1.0 else spread)
                replicas.append(config.gpus)
                noise.append((*belief.noise, model.init_batch))
                factor.append(ratio)
                cells.append((row, column))
        for row, _, _ in stale:
            found[row] = 0.0
        if cells:
            at = np.array(cells)
            best = best_batch(
                StepTime(*np.array(params).T),
                Noise(*np.array(noise, dtype=float).T),
                np.array(nodes, dtype=float),
                np.array(replicas, dtype=float),
                Limits(*np.array(limits, dtype=float).T),
            )
            found[at[:, 0], at[:, 1]] = best.goodput * np.array(factor)
        for row, _, belief in stale:
            belief.curve, belief.curve_of = found[row].copy(), (belief.version, configs)

    def _source(
        self, job: Job, belief: Belief, kind: str
    ) -> tuple[StepTime | None, KindTable, float]:
        """The model to use for a kind: its own, else the first known one's, scaled."""
        model = table_of(self._models, job)
        if kind in belief.rows:
            return fit(belief.rows[kind].values()), model.kinds[kind], 1.0
        known = next(iter(belief.rows))
        other = model.kinds[known]
        if kind not in model.kinds:
            return None, other, 0.0
        ratio = model.kinds[kind].bootstrap / other.bootstrap
        return fit(belief.rows[known].values()), other, ratio


def tuned_rate(model: ModelTable, kind: KindTable, job: Job) -> float:
    """True iterations a second at the submitted size and batch, on whole nodes first."""
    gpus, size = job.demand.gpus, kind.node_gpus
    placement = (*(size,) * (gpus // size), *((gpus % size,) if gpus % size else ()))
    batch = job.hints.get("batch", float(model.init_batch))
    accumulate = max(ceil(batch / gpus / kind.max_local - 1e-8) - 1, 0)
    local = ceil(batch / gpus / (accumulate + 1) - 1e-8)
    step, sync = kind.times(placement, local)
    return 1.0 / (step + accumulate * (step - sync)) / model.slowdown
