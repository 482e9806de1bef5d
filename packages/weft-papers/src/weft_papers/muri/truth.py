"""Truth as Muri's simulator counts it, to compare with its published results.

Zhao et al. (SIGCOMM 2022) charge the cost of a restart to every running job at every event,
whether it restarts or not; to a group, the costs of all its members. An iteration alone takes
1.5 % longer than profiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.frozen import frozen
from weft.perf.sharing.hinted_profile import profile_of

ALONE = 1.015
# Interleaved groups of two, three and four run that much longer than their stages say.
CONTENTION = (1.0, 1.33 / ALONE, 1.5 / ALONE, 1.37 / ALONE)
GPUS = (1, 2, 4, 8, 16, 32)
RESTART_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}
OTHER_S = 10.0


@frozen
class MuriTruth:
    """Recorded durations, a little longer, with a pause of all jobs at every event."""

    steady = True
    contention = CONTENTION
    gaps = True

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:  # noqa: ARG002 - the same for every job
        return SlowedRun()

    def restart(self, job: Job, *, first: bool) -> float:  # noqa: ARG002
        """Return 0: the pause at every event stands for restarts."""
        return 0.0

    def interruption(self, job: Job, beside: Sequence[Job]) -> float:
        """Return the cost of an event: restarts of all jobs on its devices that take turns."""
        return sum(pause(member.model, job.demand.gpus) for member in (job, *beside))

    def retimed(self, trace: Trace) -> Trace:
        """The trace with lengths by iterations: recorded durations are rounded to seconds."""
        jobs = tuple((job, replace(truth, length=_exact(job, truth))) for job, truth in trace)
        return replace(trace, jobs=jobs)

    def profile(self, job: Job) -> Profile:
        """Return the job's profile with an iteration a little longer than measured."""
        known = profile_of(job)
        return replace(known, step_s=known.step_s * ALONE)


class SlowedRun:
    """Runs a little slower than profiled."""

    def begin(self, on: Allocation, kind: str) -> None:
        """Do nothing: speeds are alike on all devices."""

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return Pace(1.0 / ALONE)


def _exact(job: Job, truth: Truth) -> float:
    if "iterations" not in job.hints or "iteration_s" not in job.hints:
        return truth.length
    return job.hints["iterations"] * job.hints["iteration_s"]


def pause(model: str, gpus: int) -> float:
    """Seconds that one restart of a model on that many GPUs costs."""
    costs = RESTART_S.get(model)
    return float(costs[GPUS.index(gpus)]) if costs and gpus in GPUS else OTHER_S
