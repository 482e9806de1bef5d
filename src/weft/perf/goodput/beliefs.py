"""What the scheduler believes about adaptive jobs, fitted from what they report.

One step-time model a GPU kind and one pair of gradient statistics a job. A kind that a job has
not run on yet borrows the model of one it has, scaled by single-GPU speeds (Sia, SOSP 2023).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

import numpy as np

from weft.core.model import Config, Job, JobId
from weft.core.table import Floats, Rows, Table
from weft.perf.goodput.adaptive import table_of
from weft.perf.goodput.blind import blind_goodputs
from weft.perf.goodput.curves import Sheet, Sizes, Steps, by_kind
from weft.perf.goodput.early_fit import early_fit
from weft.perf.goodput.fit import Row, fit
from weft.perf.goodput.measurements import Profile
from weft.perf.goodput.model import StepTime
from weft.perf.goodput.tables import ModelTable, Speeds


@dataclass(slots=True)
class Belief:
    """What is known of one job."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    noise: tuple[float, float] = (0.0, 0.0)
    most: int = 0
    version: int = 0
    steps: dict[str, Steps] = field(default_factory=dict)
    curve: Floats | None = None
    curve_of: tuple[object, ...] = ()
    mixed: Profile = field(default_factory=lambda: Profile(close=0.0))
    blind: Floats | None = None
    blind_of: tuple[object, ...] = ()


class FittedBeliefs:
    """Beliefs about jobs whose models have tables of facts: batch limits and one-GPU speeds.

    `cap_batch` limits the batch to the one a job was submitted with, as the authors' simulator
    does when it asks for goodput. `early` fits the models over all kinds as that one does.
    """

    def __init__(
        self, models: Mapping[str, ModelTable], *, cap_batch: bool = False, early: bool = False
    ) -> None:
        self._models = models
        self._cap_batch = cap_batch
        self._mixed_fit = early_fit if early else fit
        self._known: dict[JobId, Belief] = {}

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """Take in a report: a step time if it is of a new configuration, and the noise."""
        belief = self._known.get(job.id)
        if belief is None:
            belief = self._known[job.id] = Belief(mixed=Profile(0.0, self._mixed_fit))
        noise = (values["sqr"], values["var"])
        key = (int(values["nodes"]), int(values["replicas"]), int(values["local"]))
        profile = belief.profiles.setdefault(kind, Profile())
        before = profile.version
        row = Row(*key, values["grad_s"], values["step_s"])
        profile.observe(row)
        belief.mixed.observe(row)
        if profile.version != before:
            profile.times()  # fitted as reports come in, not while a decision waits
        elif noise == belief.noise and key[1] <= belief.most:
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

    def units(self, table: Table, kinds: Sequence[str]) -> Floats:
        """GPUs of one replica of each row on each kind; 0 where it cannot run."""
        found = np.zeros((len(table), len(kinds)))
        for row, job in enumerate(table.jobs):
            known = table_of(self._models, job).kinds
            found[row] = [known[kind].unit if kind in known else 0 for kind in kinds]
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

    def pairs(
        self,
        table: Table,  # noqa: ARG002 - of no rows
        kinds: Sequence[str],  # noqa: ARG002
        first: Rows,  # noqa: ARG002
        second: Rows,  # noqa: ARG002
    ) -> Floats | None:
        """Nobody measured any."""
        return None

    def _evaluate(
        self, stale: list[tuple[int, Job, Belief]], configs: tuple[Config, ...], found: Floats
    ) -> None:
        sheet, kinds = Sheet(), _grouped(configs)
        for row, job, belief in stale:
            found[row] = 0.0
            model = table_of(self._models, job)
            for kind, sizes in kinds.items():
                if kind not in model.kinds:
                    continue
                times, source, factor = _source(model, belief, kind)
                own, fixed = model.kinds[kind], fixed_batch_of(model, job)
                most = min(max(2 * belief.most, 1), model.max_batch // source.min_local)
                if fixed:
                    most = job.demand.max // own.unit
                batches = (float(model.init_batch), self._largest_batch(model, job))
                sheet.add(
                    row,
                    times,
                    source,
                    factor,
                    belief.noise,
                    batches,
                    sizes,
                    most,
                    own.max_nodes,
                    own.unit,
                    fixed,
                    belief.steps,
                    kind,
                )
        sheet.evaluate(found)
        for row, _, belief in stale:
            belief.curve, belief.curve_of = found[row].copy(), (belief.version, configs)

    def _largest_batch(self, model: ModelTable, job: Job) -> float:
        largest = float(model.max_batch)
        return min(job.hints.get("batch", largest), largest) if self._cap_batch else largest


def fixed_batch_of(model: ModelTable, job: Job) -> float:
    """The batch size of a job that may not choose its own; 0 of one that may."""
    return 0.0 if job.batch is not None else job.hints.get("batch", float(model.init_batch))


def _source(model: ModelTable, belief: Belief, kind: str) -> tuple[StepTime, Speeds, float]:
    """The model to use for a kind: its own, else the first known one's, scaled."""
    if kind in belief.profiles:
        return belief.profiles[kind].times(), model.kinds[kind], 1.0
    known = next(iter(belief.profiles))
    other = model.kinds[known]
    return belief.profiles[known].times(), other, model.kinds[kind].bootstrap / other.bootstrap


@lru_cache(maxsize=16)
def _grouped(configs: tuple[Config, ...]) -> dict[str, Sizes]:
    return by_kind(configs)


def tuned_rate(model: ModelTable, kind: Speeds, job: Job) -> float:
    """True iterations a second at the submitted size and batch, on whole nodes first."""
    gpus, size = job.demand.gpus, kind.node_gpus
    placement = (*(size,) * (gpus // size), *((gpus % size,) if gpus % size else ()))
    batch = job.hints.get("batch", float(model.init_batch))
    accumulate = max(ceil(batch / gpus / kind.max_local - 1e-8) - 1, 0)
    local = ceil(batch / gpus / (accumulate + 1) - 1e-8)
    step, sync = kind.times(placement, local)
    return 1.0 / (step + accumulate * (step - sync)) / model.slowdown
