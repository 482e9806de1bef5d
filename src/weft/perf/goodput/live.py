"""What the scheduler believes about real jobs, fitted from what `weft.train` reports.

The models are those of the simulator's adaptive jobs: step times by `weft.perf.goodput.fit`,
gradient noise as measured, the best batch for every size. Nothing is known of a job before its
first report, and of a job that never reports only what it asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.core.model import Config, Job, JobId
from weft.core.table import Column, Floats, Table
from weft.perf.goodput.fit import Row
from weft.perf.goodput.measurements import Profile
from weft.perf.goodput.model import Limits, Noise, StepTime, best_batch, fixed_batch
from weft.perf.linear import LinearBeliefs

Shapes = tuple[tuple[str, float, float], ...]  # kind, nodes, replicas


@dataclass(slots=True)
class Measured:
    """What one job has reported of itself."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    mixed: Profile = field(default_factory=Profile)
    noise: tuple[float, float] = (0.0, 0.0)
    batch: float = 1.0
    most: int = 0
    version: int = 0
    curves: dict[Shapes, tuple[int, Floats]] = field(default_factory=dict)


class LiveBeliefs(LinearBeliefs):
    """Goodput of jobs that report, as fitted; of others that more GPUs do more work."""

    def __init__(self) -> None:
        self._known: dict[JobId, Measured] = {}

    def observe(self, job: Job, kind: str, values: Mapping[str, float]) -> None:
        """Take in a report of `weft.train`; anything else is passed over."""
        row = row_of(values)
        if row is None:
            return
        known = self._known.setdefault(job.id, Measured())
        profile = known.profiles.setdefault(kind, Profile())
        before = profile.version, known.noise, known.most
        profile.observe(row)
        known.mixed.observe(row)
        if "grad_sqr" in values and "grad_var" in values:
            known.noise = (values["grad_sqr"], values["grad_var"])
        known.batch = values.get("batch", float(row.local * row.replicas))
        known.most = max(known.most, row.replicas)
        if before != (profile.version, known.noise, known.most):
            known.version += 1

    def forget(self, job: Job) -> None:
        """A job has left."""
        self._known.pop(job.id, None)

    def most_run(self, table: Table) -> Floats:
        """The most replicas each row has run with; as many as it may have if it never reports."""
        most = np.array(table.column(Column.MAX))
        for row, job in enumerate(table.jobs):
            if job.id in self._known:
                most[row] = self._known[job.id].most
        return most

    def goodputs(self, table: Table, configs: Sequence[Config]) -> Floats:
        """Rows x configurations: useful samples a second; NaN in rows of unknown jobs."""
        shapes = tuple((c.kind, float(c.nodes), float(c.gpus)) for c in configs)
        found = np.full((len(table), len(configs)), np.nan)
        for row, job in enumerate(table.jobs):
            known = self._known.get(job.id)
            if known is not None:
                found[row] = _curve(job, known, shapes)
        return found

    def blind_goodputs(
        self,
        table: Table,
        kinds: Sequence[str],  # noqa: ARG002 - blind to them
        nodes: Floats,
        replicas: Floats,
    ) -> Floats:
        """Rows x shapes by one model over all kinds; NaN in rows of unknown jobs."""
        pairs = zip(nodes.tolist(), replicas.tolist(), strict=True)
        shapes = tuple(("", float(n), float(k)) for n, k in pairs)
        found = np.full((len(table), len(shapes)), np.nan)
        for row, job in enumerate(table.jobs):
            known = self._known.get(job.id)
            if known is not None:
                found[row] = _curve(job, known, shapes)
        return found


def row_of(values: Mapping[str, float]) -> Row | None:
    """The step time in a report, one synchronised step without accumulation; None if none is."""
    if not {"step_s", "grad_s", "per_gpu"} <= values.keys():
        return None
    local, micros = values["per_gpu"], values.get("accumulate", 0.0) + 1.0
    grad = values["grad_s"]
    step = values["step_s"] - (micros - 1.0) * grad
    if not (grad > 0.0 and step > 0.0 and local >= 1.0):
        return None
    total = values.get("batch", local * micros)
    replicas = int(values.get("replicas", max(round(total / (local * micros)), 1)))
    return Row(int(values.get("nodes", 1.0)), replicas, int(local), grad, max(step, grad))


def _curve(job: Job, known: Measured, shapes: Shapes) -> Floats:
    version, curve = known.curves.get(shapes, (-1, None))
    if version != known.version or curve is None:
        curve = np.array([_goodput(job, known, *shape) for shape in shapes])
        known.curves = {shapes: (known.version, curve)}
    return curve


def _goodput(job: Job, known: Measured, kind: str, nodes: float, replicas: float) -> float:
    """0 for sizes too far from what the job has run with to say anything of them."""
    if replicas > max(2 * known.most, 1):
        return 0.0
    times, batch = _times(known, kind), job.batch
    init = float(batch.init) if batch is not None else known.batch
    noise = Noise(*known.noise, init)
    if batch is None:
        limits = Limits(init, 1.0, init)
        return float(fixed_batch(times, noise, nodes, replicas, limits, init).goodput)
    limits = Limits(float(batch.max), 1.0, float(batch.max_per_gpu))
    return float(best_batch(times, noise, nodes, replicas, limits).goodput)


def _times(known: Measured, kind: str) -> StepTime:
    """The model of a kind; where the job has not been, that of another kind."""
    if not kind:
        return known.mixed.times()
    return known.profiles.get(kind, next(iter(known.profiles.values()))).times()
