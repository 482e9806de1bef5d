"""The scheduler's knowledge of jobs beyond what they ask for: one value, of up to eight parts.

A `Predictor` tells how long jobs still take, `Beliefs` how fast they are on what, `Pooled` beliefs
the same from all jobs that train the same model, a `Colocation` how they get on beside each other,
a `TrainingKnowledge` how their losses fall, `ChangeCosts` what it costs to change their devices,
`Programs` what others that ran the same script needed, and `Plans` which execution plans run where.
All but the first learn from what running jobs report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from weft.core.errors import InvalidConfig
from weft.core.events.event import Failed
from weft.core.events.job_end import Ended
from weft.core.events.report import Report
from weft.core.knowledge.costs import AttemptSource, ChangeCosts
from weft.core.knowledge.learning import Learning
from weft.core.knowledge.plans import Plans
from weft.core.knowledge.predictor import Predictor
from weft.core.knowledge.profile import Profile, Sensitivity
from weft.core.knowledge.programs import Programs
from weft.core.model.job import Allocation, Batch, Config, Discipline, Job, JobId, NodeId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable, Rows
from weft.frozen import frozen


@dataclass(slots=True)
class Knowledge:
    """All that is known about jobs; a part that is None is unknown.

    It changes by `observe`, `learn` and `forget` alone, so that the same events lead to the same
    knowledge. `save` gives plain values that `load` takes up again, in one of the same parts. `bus`
    is a table that was measured: it learns nothing. `counted` are the seconds that running jobs
    counted to their end, with how long they had run then; `failed_on` are the nodes on which jobs
    failed at their start. Both are rebuilt, and not saved.
    """

    predictor: Predictor | None = None
    beliefs: Beliefs | None = None
    colocation: Colocation | None = None
    training: TrainingKnowledge | None = None
    bus: BusSharing | None = None
    costs: ChangeCosts | None = None
    pooled: Pooled | None = None
    programs: Programs | None = None
    plans: Plans | None = None
    counted: dict[JobId, tuple[float, float]] = field(default_factory=dict)
    failed_on: dict[JobId, frozenset[NodeId]] = field(default_factory=dict)

    def observe(
        self, job: Job, kind: str, report: Report, attempt: AttemptSource | None = None
    ) -> None:
        """A running job, on GPUs of `kind`, reported."""
        if report.total_steps is not None and attempt is not None:
            left_s = report.left_s
            if left_s is not None:
                self.counted[job.id] = left_s, attempt.ran
        if self.beliefs is not None:
            self.beliefs.observe(job, kind, report)
        if self.colocation is not None:
            self.colocation.observe(job, kind, report)
        if self.training is not None:
            self.training.observe(job, kind, report)
        if self.pooled is not None:
            self.pooled.observe(job, kind, report, attempt)
        if self.costs is not None and attempt is not None and report.trains:
            self.costs.observe_report(job, kind, attempt)
        if self.programs is not None and attempt is not None:
            self.programs.observe(job, kind, report, attempt)
        if self.plans is not None and attempt is not None and job.plans:
            self.plans.observe(job, kind, report, attempt)

    def forget(self, job: Job) -> None:
        self.counted.pop(job.id, None)
        self.failed_on.pop(job.id, None)
        learnt = (self.beliefs, self.colocation, self.training, self.pooled, self.costs)
        for part in (*learnt, self.programs, self.plans):
            if part is not None:
                part.forget(job)

    def note_failed(self, job: Job, kind: str, on: Allocation, how: Failed) -> None:
        """An attempt died; if others left it too little memory, or it made a fault, by those."""
        if not how.lost and self.plans is not None:
            self.plans.fail(job, kind, on)
        if how.gpu_fault and self.programs is not None:
            self.programs.observe_fault(job, beside=how.lost)
        elif how.lost and how.out_of_memory and self.programs is not None:
            self.programs.observe_out_of_memory(job, kind)

    def note_failed_start(self, job: Job, on: Allocation) -> None:
        """An attempt died at its start: the next one had better be on other nodes."""
        nodes = {part.node for part in on.slices}
        self.failed_on[job.id] = self.failed_on.get(job.id, frozenset()) | nodes

    def learn(self, ended: Ended) -> None:
        """A job ended, in whatever way."""
        if self.predictor is not None:
            self.predictor.learn(ended)

    def fit_aside(self) -> None:
        """From now on the predictor's model is fitted elsewhere, and arrives as `Refitted`."""
        if self.predictor is not None and self.predictor.fits is not None:
            self.predictor.fits.aside = True

    def adopt_model(self, model: Any) -> None:
        """The predictor goes on with a model that was fitted elsewhere."""
        if self.predictor is not None and self.predictor.fits is not None:
            self.predictor.fits.adopt(model)

    def note_submitted(self, job: Job, now: float) -> None:
        """A job was submitted: what is predicted of it now is scored when it ends."""
        if self.predictor is not None:
            self.predictor.note_submitted(job, now)

    def save(self) -> dict[str, Any]:
        return {name: part.save() for name, part in self._parts()}

    def load(self, saved: Mapping[str, Any], *, lenient: bool = False) -> set[str]:
        """Restore what `save` returned; for a Knowledge that has learnt nothing yet.

        If `lenient`, parts that were not saved, or by another kind of part, start over: their
        names are returned.
        """
        parts = dict(self._parts())
        if lenient:
            anew = set(parts)
            for name, part in parts.items():
                with suppress(AttributeError, KeyError, TypeError, ValueError):
                    part.load(saved[name])
                    anew.remove(name)
            return anew
        if parts.keys() != saved.keys():
            raise InvalidConfig(
                f"knowledge of {', '.join(saved) or 'nothing'} was saved; "
                f"this scheduler has {', '.join(parts) or 'none'}"
            )
        for name, part in parts.items():
            part.load(saved[name])
        return set()

    def _parts(self) -> list[tuple[str, Learning]]:
        parts: tuple[tuple[str, Learning | None], ...] = (
            ("predictor", self.predictor),
            ("beliefs", self.beliefs),
            ("colocation", self.colocation),
            ("training", self.training),
            ("costs", self.costs),
            ("pooled", self.pooled),
            ("programs", self.programs),
            ("plans", self.plans),
        )
        return [(name, part) for name, part in parts if part is not None]


class Beliefs(Learning, Protocol):
    """The scheduler's beliefs about speeds, from what jobs reported of themselves."""

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Learn from a report of a running job."""
        ...

    def forget(self, job: Job) -> None: ...

    def rates(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: speed on as many GPUs as asked for; 0 where a job cannot run."""
        ...

    def goodputs(self, table: JobTable, configs: Sequence[Config]) -> Floats:
        """Rows x configurations: useful samples per second.

        0 where a job cannot run; NaN in the rows of jobs that nothing is known about yet.
        """
        ...

    def blind_goodputs(
        self, table: JobTable, kinds: Sequence[str], nodes: Floats, replicas: Floats
    ) -> Floats:
        """Rows x shapes: goodput as if all kinds were one; NaN in rows of unknown jobs.

        Batch limits are those of the first of `kinds` that a job can use.
        """
        ...

    def units(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: GPUs of the smallest size a job runs on; 0 where it cannot run."""
        ...

    def most_run(self, table: JobTable) -> Floats:
        """The most replicas each row has ever run with; 0 before its first run."""
        ...

    def restart_s(self, table: JobTable) -> Floats:
        """Seconds a restart is believed to cost each row."""
        ...

    def pairs(
        self, table: JobTable, kinds: Sequence[str], first: Rows, second: Rows
    ) -> Floats | None:
        """Pairs x kinds x 2: speeds of two rows that share devices; None where not measured."""
        ...


class Pooled(Beliefs, Protocol):
    """Beliefs from all jobs that train the same model, running and ended."""

    def observe(
        self, job: Job, kind: str, report: Report, attempt: AttemptSource | None = None
    ) -> None:
        """A running job reported; `attempt` tells when, and on what."""
        ...

    def alone(self, table: JobTable, kinds: Sequence[str]) -> Floats:
        """Rows x kinds: how kinds compare for one replica of jobs without reports."""
        ...

    def work_left(self, table: JobTable, now: float) -> Floats:
        """Useful samples that each row still needs; NaN where unknown.

        Counted so that divided by `goodputs` they are seconds.
        """
        ...

    def work(self, table: JobTable) -> Floats:
        """Useful samples of the whole training of each row; NaN where unknown."""
        ...

    def first_batch(self, job: Job, config: Config) -> Batch | None:
        """The batch to begin with on a size; None where nothing is known, or there is no choice."""
        ...


class Colocation(Learning, Protocol):
    """The scheduler's beliefs about jobs that share devices."""

    def profile(self, job: Job) -> Profile:
        """A job's use of a device when alone."""
        ...

    def host(self, job: Job) -> Sensitivity | None:
        """The effect of CPU cores and host memory on a job; None where unknown."""
        ...

    def tunable(self, job: Job) -> TunableBatch | None:
        """The facts about a job whose batch size may be changed; None of any other."""
        ...

    def speeds(self, jobs: Sequence[Job], kind: str, discipline: Discipline) -> Sequence[float]:
        """Speed of each on the same devices, as a part of its speed alone there."""
        ...

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Learn from a report of a running job."""
        ...

    def pace(self, job: Job) -> float | None:
        """The speed that a job last measured beside its neighbours; None before it did."""
        ...

    def forget(self, job: Job) -> None: ...


class BusSharing(Protocol):
    """The slowdown of jobs on GPUs of one socket: they share its bus, not their GPUs."""

    def speed(self, job: Job, beside: Job) -> float:
        """Speed of `job` beside another, as a part of its speed alone; by model and GPUs."""
        ...


@frozen
class TunableBatch:
    """Facts about a job whose batch size can be changed while it runs.

    `init` is the batch it was submitted with; device memory grows from `fixed_gb` by `sample_gb` a
    sample. `noise` is the gradient noise scale, in samples, that jobs measure of themselves. How
    long a step takes at a batch size is not here: it must be measured.
    """

    init: int
    fixed_gb: float
    sample_gb: float
    noise: float

    def efficiency(self, batch: int) -> float:
        """Progress of a sample at a batch size, relative to one at the initial size.

        E(m) = (noise + m0) / (noise + m), after McCandlish et al. 2018.
        """
        return (self.noise + self.init) / (self.noise + batch)

    def mem_gb(self, batch: int) -> float:
        """Peak of device memory at a batch size."""
        return self.fixed_gb + self.sample_gb * batch


@frozen
class LossSoFar:
    """The progress of a job by its loss.

    `iteration` and `loss` are its last; `largest` is the largest change of loss in one iteration,
    `recent` the last one. `gpu_s` is one iteration's time times the GPUs it ran on, 0 where
    unknown. `law` predicts the loss at iterations; None before there is anything to fit.
    """

    iteration: float
    loss: float
    largest: float
    recent: float
    gpu_s: float
    law: Callable[[Any], Any] | None = None


@frozen
class EpochsSoFar:
    """The progress of a job that trains in regimes.

    `over` epochs are done, `begun` counts those that have begun by batch size, and `batch` is that
    of the epoch under way; `slower` is how many times as long as declared they take.
    """

    over: int = 0
    begun: Mapping[int, int] = field(default_factory=dict)
    batch: int = 0
    slower: float = 1.0

    @classmethod
    def after(cls, over: int, runs: Sequence[tuple[int, int]]) -> EpochsSoFar:
        """With that many epochs over of a job that trains with (batch size, epochs) in turn."""
        batches = [batch for batch, epochs in runs for _ in range(epochs)][: over + 1]
        return cls(over, dict(Counter(batches)), batches[-1] if len(batches) > over else 0)


class TrainingKnowledge(Learning, Protocol):
    """The scheduler's beliefs about trainings: workers and servers, losses, regimes."""

    def observe(self, job: Job, kind: str, report: Report) -> None:
        """Learn from a report of a running job."""
        ...

    def forget(self, job: Job) -> None: ...

    def ratios(self, job: Job) -> tuple[float, float, float, float] | None:
        """Seconds of the whole training on w workers and p servers, as coefficients.

        Of 1, 1/w, w/p and 1/p; None of a job without servers.
        """
        ...

    def step_seconds(self, job: Job, workers: int, servers: int) -> Floats | None:
        """Servers x workers, from 0 on: seconds of an update; None of a job without servers."""
        ...

    def steps_left(self, job: Job) -> float | None:
        """Updates until the loss hardly falls any more; None where nothing tells."""
        ...

    def seconds_left(self, job: Job) -> float | None:
        """Seconds until the loss hardly falls any more, on what the job asked for; None if unknown.

        Of jobs that reduce among themselves; those with servers are asked for `steps_left`.
        """
        ...

    def learned(self, job: Job) -> LossSoFar | None:
        """The progress of a job by its loss; None before its first report of one."""
        ...

    def epochs(self, job: Job) -> EpochsSoFar | None:
        """The progress of a job in epochs; None before it reported any."""
        ...
