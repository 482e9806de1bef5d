"""Jobs that tune their own batch size as they train, on measured tables.

What Pollux's and Sia's executors do: at the start, at the end of an epoch and once a round, take
the batch with the highest goodput under the job's own fitted model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from weft.base.step_fit import FitRow
from weft.base.step_times import TINY
from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Batch, Job
from weft.core.model.trace import Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.frozen import frozen
from weft.native import compiled
from weft.perf.goodput.early_fit import early_fit
from weft.perf.goodput.measurements import StepMeasurements
from weft.perf.goodput.model import BatchBounds, Trials, trials
from weft.perf.goodput.tables import ModelTable, noise_between


@frozen
class Adaptive:
    """The truth for batch-adaptive jobs. Every start, the first too, loads a checkpoint.

    With `tuned` jobs keep the batch size they were submitted with, as under schedulers that
    do not change sizes. With `blind` a job tunes by one model over all GPU kinds, fitted as in
    the simulator of Sia.
    """

    models: Mapping[str, ModelTable]
    restart_cost: float | None = None
    tuned: bool = False
    blind: bool = False

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """A job that tunes itself, or keeps the batch size it was submitted with."""
        table = table_of(self.models, job)
        fixed = self.tuned or job.batch is None
        batch = int(job.hints.get("batch", table.init_batch)) if fixed else None
        return AdaptiveJob(table, truth.length, batch, self.blind)

    def restart(self, job: Job, *, first: bool) -> float:  # noqa: ARG002
        """The model's cost, at the first start as at any other."""
        if self.restart_cost is not None:
            return self.restart_cost
        return table_of(self.models, job).restart_s


def table_of(models: Mapping[str, ModelTable], job: Job) -> ModelTable:
    """The tables of the model a job trains."""
    if job.model not in models:
        raise InvalidConfig(
            f"job {job.id!r} trains {job.model!r}, for which there is no profile",
            hint=f"there are profiles of {', '.join(sorted(models))}",
        )
    return models[job.model]


NO_LIMITS = BatchBounds(0, 0, 0)  # before the first allocation


@dataclass(slots=True)
class AdaptiveJob:
    """One self-tuning job.

    `length` is the job in seconds of the allocation it asked for; progress is counted in
    iterations of the initial batch size and scaled to that. `batch` is the global batch size
    of a job that may not choose its own. `replicas` copies of the model train in parallel.
    What the batch was tuned for, the size that was measured and the news told hold for where the
    job is; `seen` is what it measured on GPUs like those.
    """

    table: ModelTable
    length: float
    batch: int | None = None
    blind: bool = False
    kind: str = ""
    placement: tuple[int, ...] = ()
    measured: dict[str, StepMeasurements] = field(default_factory=dict)
    noise: tuple[float, float] | None = None
    local: int = 0
    accumulate: int = 1
    fresh: bool = False
    seen: StepMeasurements | None = None
    tuned_for: tuple[object, ...] = ()
    trials: Trials | None = None
    tried_for: int = 0
    measured_local: int = 0
    measured_times: tuple[float, float] = (0.0, 0.0)
    most_local: int = 0
    limits: BatchBounds = NO_LIMITS
    said: tuple[object, ...] = ()
    replicas: int = 0
    progress: float = 0.0

    def begin(self, on: Allocation, kind: str) -> None:
        """A new allocation: choose a batch for it."""
        placement = tuple([len(part.gpus) for part in on.slices])
        if placement != self.placement or kind != self.kind:
            self.placement, self.kind = placement, kind
            self.seen = self.measured.get("" if self.blind else kind)
            self.tuned_for, self.trials, self.measured_local = (), None, 0
        own = self.table.kinds[kind]
        self.replicas = sum(self.placement) // own.unit
        self.most_local = own.largest_local(self.placement)
        self.limits = BatchBounds(self.table.max_batch, own.min_local, self.most_local)
        self.tune()
        if on.batch is not None and self.batch is None and own.unit == 1:
            self._begin_with(on.batch)
        self.fresh, self.said = True, ()

    def pace(self, done: float, until_tick: float) -> Pace:
        """Until the epoch or the round ends, whichever is first."""
        table = self.table
        if not self.fresh:
            self.tune()
        self.fresh = False
        ends, last = table.ends, table.epochs - 1
        unit = self.length / ends[-1]
        start = progress = done / unit
        self.progress = progress / ends[-1]
        epoch = bisect_right(ends, progress * (1.0 + 1e-12))
        while True:
            now = min(epoch, last)
            speed, end = self.observe(now), ends[now]
            if progress + speed * until_tick < end:
                gained = progress + speed * until_tick - start
                return Pace(unit * gained / until_tick, until_tick, self.next_report())
            # Epochs end on whole seconds, as in the simulator the tables come from.
            seconds: float = round((end - progress) / speed)
            epoch, progress = epoch + 1, end
            if seconds > 0 or epoch >= table.epochs:
                seconds = max(seconds, 1e-3)
                return Pace(unit * (end - start) / seconds, seconds, self.next_report())
            self.tune()

    def next_report(self) -> Report | None:
        """Return a report of what changed; None if nothing did."""
        local, accumulate, replicas = self.local, self.accumulate, self.replicas
        facts = (self.noise, local, accumulate)
        if facts == self.said:
            return None
        self.said = facts
        step, sync = self.measured_times
        sqr, var = self.noise or (0.0, 0.0)
        grad, table = step - sync, self.table
        return Report.of(
            {
                "step_s": step + (accumulate - 1) * grad,
                "grad_s": grad,
                "last_s": step,
                "batch": local * replicas * accumulate,
                "per_gpu": local,
                "accumulate": accumulate,
                "replicas": replicas,
                "nodes": len(self.placement),
                "grad_sqr": sqr,
                "grad_var": var,
                "progress": min(self.progress, 1.0),
                "work": table.ends[-1] * table.init_batch,
            }
        )

    def _begin_with(self, batch: Batch) -> None:
        """The scheduler says what to begin with; the job tunes itself from there."""
        self.accumulate = batch.accumulate
        most = self.table.max_batch // (self.replicas * self.accumulate)
        self.local = max(min(batch.per_gpu, self.most_local, most), 1)
        self.tuned_for = ()

    def observe(self, epoch: int) -> float:
        """True progress per second now, of which the job takes the measure."""
        table, local, accumulate = self.table, self.local, self.accumulate
        if local != self.measured_local:
            self._measure(local)
        step, sync = self.measured_times
        speed, self.noise = _true_speed(
            table.batches,
            table.stats[epoch],
            local * self.replicas * accumulate,
            table.init_batch,
            step + (accumulate - 1) * (step - sync),
            table.slowdown,
        )
        return speed

    def _measure(self, local: int) -> None:
        """A batch other than the last: its times, which are a measurement where they are new."""
        step, sync = self.table.kinds[self.kind].times(self.placement, local)
        self.measured_local, self.measured_times = local, (step, sync)
        seen = self.seen
        if seen is None:
            # Measurements of several kinds contradict each other: each of them may matter.
            seen = StepMeasurements(0.0, early_fit) if self.blind else StepMeasurements()
            self.seen = self.measured["" if self.blind else self.kind] = seen
        seen.observe(FitRow(len(self.placement), self.replicas, local, step - sync, step))

    def tune(self) -> None:
        """Take the best batch for the placement under the job's own fitted model."""
        seen, noise = self.seen, self.noise
        version = 0 if seen is None else seen.version
        facts = (version, noise)
        if facts == self.tuned_for:
            return  # nothing new to choose by
        self.tuned_for = facts
        table, replicas = self.table, self.replicas
        if self.batch is None and seen is not None and noise is not None:
            if self.trials is None or version != self.tried_for:
                nodes, init = float(len(self.placement)), table.init_batch
                self.trials = trials(seen.times(), nodes, float(replicas), init, self.limits)
                self.tried_for = version
            choice = self.trials.best(noise)
            local, accumulate = int(choice.local), int(choice.accumulate)
        else:
            kind = table.kinds[self.kind]
            batch = self.batch or max(table.init_batch, kind.min_local * replicas)
            local, accumulate = split(batch, replicas, self.most_local, table.init_batch)
            if kind.unit > 1:
                local, accumulate = kind.min_local, 1
        self.local = max(min(local, table.max_batch // (replicas * accumulate)), 1)
        self.accumulate = accumulate


def split(batch: int, replicas: int, max_local: int, init_batch: int) -> tuple[int, int]:
    """Samples per GPU, and in how many steps they make up a global batch."""
    each = ceil(batch / replicas - TINY)
    accumulate = ceil(each / max_local - TINY)
    if replicas == 1 and batch > init_batch:
        accumulate = max(accumulate, 2)
    return ceil(each / accumulate - TINY), accumulate


@compiled
def _true_speed(
    sizes: tuple[float, ...],
    stats: tuple[tuple[float, float], ...],
    batch: int,
    init: int,
    took: float,
    slowdown: float,
) -> tuple[float, tuple[float, float]]:
    """Progress per second in iterations of the initial batch, and the noise at the batch size."""
    sqr, var = noise_between(sizes, stats, batch)
    gain = (var + sqr) / (var / (batch / init) + sqr)
    return gain / took / slowdown, (sqr, var)
