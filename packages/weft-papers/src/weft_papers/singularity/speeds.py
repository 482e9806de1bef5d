"""Jobs that keep their ranks and share devices when they have fewer (Singularity)."""

from __future__ import annotations

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.frozen import frozen
from weft.perf.sharing.colocation import CONTENTION
from weft.perf.sharing.hinted_profile import profile_of
from weft_papers.singularity.splicing import CheckpointCost, Iteration, IterationParts


@frozen
class Splicing(IterationParts):
    """Recorded durations on the GPUs asked for; on fewer of them ranks take turns.

    Parts of an iteration are `compute`, `allreduce` and `update`, and `switch` between ranks. A
    move or a change of size costs a checkpoint: state and private memory in GB, over a storage of
    `storage_gbps` GB a second for each node of `node_gpus` GPUs, beside a barrier and a restore.
    """

    state_gb: float = 12.0
    private_gb: float = 1.0
    storage_gbps: float = 2.0
    barrier_s: float = 5.0
    restore_s: float = 20.0
    node_gpus: int = 8

    steady = True
    contention = CONTENTION
    gaps = False
    interruption = None

    @property
    def iteration(self) -> Iteration:
        """Its parts."""
        return Iteration(self.compute, self.allreduce, self.update, self.switch, self.squash)

    @property
    def checkpoint(self) -> CheckpointCost:
        """Return the sizes and bandwidths that a move depends on."""
        return CheckpointCost(
            self.state_gb,
            self.private_gb,
            storage_gbps=self.storage_gbps,
            barrier_s=self.barrier_s,
            restore_s=self.restore_s,
        )

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:  # noqa: ARG002 - the same for every truth
        """A job whose ranks take turns."""
        return _Spliced(self.iteration, job.demand.gpus)

    def retimed(self, trace: Trace) -> Trace:
        return trace

    def profile(self, job: Job) -> Profile:
        return profile_of(job)

    def restart(self, job: Job, *, first: bool) -> float:
        """Return the seconds of a start: none at first, those of a move after that."""
        ranks = max(job.demand.gpus, 1)
        return 0.0 if first else self.checkpoint.move_s(ranks, -(-ranks // self.node_gpus))


class _Spliced:
    __slots__ = ("_iteration", "_pace", "_ranks")

    def __init__(self, iteration: Iteration, ranks: int) -> None:
        self._iteration, self._ranks = iteration, ranks
        self._pace = Pace(1.0)

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - blind to kinds
        """Take note of the size; beyond its ranks a job has no use for more."""
        self._pace = Pace(self._iteration.speed(on.gpus, self._ranks))

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return self._pace
