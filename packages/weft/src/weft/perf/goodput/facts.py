"""Facts about adaptive jobs besides their reports: allowed batch sizes, and limits.

Facts of models with measured tables come from the tables; of any other job from its submitter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple, Protocol

from weft.core.model.job import Job
from weft.frozen import frozen
from weft.perf.goodput.adaptive import table_of
from weft.perf.goodput.tables import KindFacts, KindModel, ModelTable
from weft.perf.restart import restart_s


class Batches(NamedTuple):
    """The initial and the largest global batch; `fixed` is that of a job that has no choice."""

    init: float
    largest: float
    fixed: float = 0.0


class Facts(Protocol):
    """The source of facts about a job; `batch` is the one it last trained with."""

    def batches(self, job: Job, batch: float) -> Batches:
        """The batches that it may train with."""
        ...

    def limits_on(self, job: Job, batch: float, kind: str) -> KindFacts | None:
        """Its limits on a kind; None where it cannot run."""
        ...

    def most_replicas(self, job: Job, ran: int, own: KindFacts, source: KindFacts) -> float:
        """The most replicas worth believing in, of a job that ran with `ran`."""
        ...

    def limits_on_any_kind(self, job: Job, batch: float, kinds: Sequence[str]) -> tuple[float, ...]:
        """Initial and largest batch, least and most on one GPU, taking all kinds for one."""
        ...

    def assumed_replicas(self, job: Job) -> float:
        """The most replicas that a job which never reported is taken to have run with."""
        ...

    def replica_gpus(self, job: Job, kinds: Sequence[str]) -> Sequence[float]:
        """GPUs of one replica on each kind; 0 where it cannot run."""
        ...

    def submitted_speed(self, job: Job, kind: str) -> float:
        """Speed at the size and batch it was submitted with; 0 where it cannot run."""
        ...

    def restart_s(self, job: Job) -> float:
        """Return the assumed cost of a restart."""
        ...


@frozen
class MeasuredFacts:
    """Of jobs whose models have tables.

    `cap_batch` limits the batch to the one a job was submitted with, as the authors' simulator of
    Sia does when it asks for goodput. `pause_of` is what a change of devices costs data-parallel
    jobs where they need no restart for it.
    """

    models: Mapping[str, ModelTable]
    cap_batch: bool = False
    pause_of: Callable[[Job], float] | None = None

    def batches(self, job: Job, batch: float) -> Batches:  # noqa: ARG002 - tables say
        """Return the batch sizes with which the model was measured."""
        model = table_of(self.models, job)
        largest = float(model.max_batch)
        if self.cap_batch:
            largest = min(job.hints.get("batch", largest), largest)
        return Batches(float(model.init_batch), largest, fixed_batch_of(model, job))

    def limits_on(self, job: Job, batch: float, kind: str) -> KindFacts | None:  # noqa: ARG002
        """Return what was measured of the model on this kind of GPU."""
        return table_of(self.models, job).kinds.get(kind)

    def most_replicas(self, job: Job, ran: int, own: KindFacts, source: KindFacts) -> float:
        """Twice as many as it ran with; all that it may have if its batch is fixed."""
        if job.batch is None:
            return job.demand.max // own.unit
        return min(max(2 * ran, 1), table_of(self.models, job).max_batch // source.min_local)

    def limits_on_any_kind(self, job: Job, batch: float, kinds: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002
        """Limits of the first kind that the model was measured on."""
        model = table_of(self.models, job)
        kind = next((kind for kind in kinds if kind in model.kinds), next(iter(model.kinds)))
        own = model.kinds[kind]
        return model.init_batch, model.max_batch, own.min_local, own.max_local

    def assumed_replicas(self, job: Job) -> float:  # noqa: ARG002 - the same for all
        return 0.0

    def replica_gpus(self, job: Job, kinds: Sequence[str]) -> Sequence[float]:
        known = table_of(self.models, job).kinds
        return [known[kind].unit if kind in known else 0 for kind in kinds]

    def submitted_speed(self, job: Job, kind: str) -> float:
        model = table_of(self.models, job)
        return tuned_rate(model, model.kinds[kind], job) if kind in model.kinds else 0.0

    def restart_s(self, job: Job) -> float:
        table = table_of(self.models, job)
        if self.pause_of is not None and all(kind.unit == 1 for kind in table.kinds.values()):
            return self.pause_of(job)
        return table.assumed_restart_s


@frozen
class AnyKind:
    """A job that is taken to run on every kind alike."""

    max_local: int
    min_local: int = 1
    bootstrap: float = 1.0
    node_gpus: int = 1
    max_nodes: float = inf
    unit: int = 1


@frozen
class DeclaredFacts:
    """Of jobs without measurements: the batches their submitter allows, on any kind."""

    def batches(self, job: Job, batch: float) -> Batches:
        """As declared; the one that it trains with where nothing was."""
        if job.batch is None:
            return Batches(batch, batch, batch)
        return Batches(float(job.batch.init), float(job.batch.max))

    def limits_on(self, job: Job, batch: float, kind: str) -> KindFacts | None:  # noqa: ARG002
        """Return the same limits on every kind."""
        return AnyKind(int(batch) if job.batch is None else job.batch.max_per_gpu)

    def most_replicas(
        self,
        job: Job,  # noqa: ARG002
        ran: int,
        own: KindFacts,  # noqa: ARG002
        source: KindFacts,  # noqa: ARG002
    ) -> float:
        """Twice as many as it ran with."""
        return max(2 * ran, 1)

    def limits_on_any_kind(self, job: Job, batch: float, kinds: Sequence[str]) -> tuple[float, ...]:  # noqa: ARG002
        """Return the same limits on every kind."""
        init, largest, _ = self.batches(job, batch)
        return init, largest, 1.0, init if job.batch is None else job.batch.max_per_gpu

    def assumed_replicas(self, job: Job) -> float:
        """As many as it may have: it will never say more."""
        return float(job.demand.max)

    def replica_gpus(self, job: Job, kinds: Sequence[str]) -> Sequence[float]:  # noqa: ARG002
        return [1.0] * len(kinds)

    def submitted_speed(self, job: Job, kind: str) -> float:  # noqa: ARG002
        """1 on whatever it asked for."""
        return 1.0

    def restart_s(self, job: Job) -> float:
        return restart_s(job.model)


def fixed_batch_of(model: ModelTable, job: Job) -> float:
    """The batch size of a job that may not choose its own; 0 of one that may."""
    return 0.0 if job.batch is not None else job.hints.get("batch", float(model.init_batch))


def tuned_rate(model: ModelTable, kind: KindModel, job: Job) -> float:
    """True iterations per second at the submitted size and batch, on whole nodes first."""
    gpus, size = job.demand.gpus, kind.node_gpus
    placement = (*(size,) * (gpus // size), *((gpus % size,) if gpus % size else ()))
    batch = job.hints.get("batch", float(model.init_batch))
    micros = max(ceil(batch / gpus / kind.max_local - 1e-8), 1)
    local = ceil(batch / gpus / micros - 1e-8)
    step, sync = kind.times(placement, local)
    return 1.0 / (step + (micros - 1) * (step - sync)) / model.slowdown
