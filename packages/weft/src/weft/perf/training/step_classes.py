"""Jobs that go as fast as their weights travel: the model of "Characterizing ..." (IISWC 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from weft.core.errors import InvalidConfig
from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import Trace, Truth
from weft.core.protocols import Pace, SimulatedJob
from weft.frozen import frozen
from weft.perf.restart import restart_s
from weft.perf.sharing.colocation import CONTENTION
from weft.perf.sharing.hinted_profile import profile_of

RECORDED: Class = "ps"


@frozen
class StepClasses:
    """Recorded durations with parameter servers at 25 Gbit/s; speeds by where the GPUs are.

    A step moves `input_gb` and `weights_gb`, computes `tflop` and reads `memory_gb`; a job's hints
    of the same names go before. GPUs of one node, eight at most, reduce over NVLink; those of
    several over an Ethernet of `ethernet_gbit` Gbit/s, with parameter servers or, if
    `allreduce=true`, among themselves. Nothing travels on one GPU.
    """

    input_gb: float = 0.2
    tflop: float = 3.0
    memory_gb: float = 20.0
    weights_gb: float = 1.0
    ethernet_gbit: float = 25.0
    allreduce: bool = False

    steady = True
    contention = CONTENTION
    gaps = False
    interruption = None

    def __post_init__(self) -> None:
        amounts = (self.input_gb, self.tflop, self.memory_gb, self.weights_gb)
        if min(amounts) < 0.0 or not (self.tflop > 0.0 and self.ethernet_gbit > 0.0):
            raise InvalidConfig(
                "step-classes: amounts of a step are 0 or more, tflop and ethernet_gbit above 0"
            )

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:  # noqa: ARG002 - the same for every truth
        """A job whose speed follows its place."""
        hinted = {
            name: max(job.hints[name], 0.0)
            for name in ("input_gb", "tflop", "memory_gb", "weights_gb")
            if name in job.hints
        }
        step = replace(
            StepWork(self.input_gb, self.tflop, self.memory_gb, self.weights_gb), **hinted
        )
        return _Placed(job.demand.gpus, step, faster_network(self.ethernet_gbit), self.allreduce)

    def retimed(self, trace: Trace) -> Trace:
        return trace

    def profile(self, job: Job) -> Profile:
        return profile_of(job)

    def restart(self, job: Job, *, first: bool) -> float:
        """Nothing at the first start, which the recorded duration includes."""
        return 0.0 if first else restart_s(job.model)


class _Placed:
    __slots__ = ("_allreduce", "_asked", "_media", "_pace", "_recorded_s", "_step")

    def __init__(self, asked: int, step: StepWork, media: Media, allreduce: bool) -> None:
        self._asked, self._step, self._media, self._allreduce = asked, step, media, allreduce
        kind = RECORDED if asked > 1 else "1w1g"
        self._recorded_s = step_time(step, kind).total_s
        self._pace = Pace(1.0)

    def begin(self, on: Allocation, kind: str) -> None:  # noqa: ARG002 - blind to kinds
        way = _class_of(on, allreduce=self._allreduce)
        workers = on.gpus if way == "allreduce-local" else 1
        step_s = step_time(self._step, way, self._media, workers).total_s
        self._pace = Pace(on.gpus / max(self._asked, 1) * self._recorded_s / step_s)

    def pace(self, done: float, until_tick: float) -> Pace:  # noqa: ARG002
        return self._pace


def _class_of(on: Allocation, *, allreduce: bool) -> Class:
    if on.gpus <= 1:
        return "1w1g"
    if len(on.slices) == 1 and on.gpus <= MOST_LOCAL:
        return "allreduce-local"
    return "allreduce-cluster" if allreduce else RECORDED


# ---- How long a step takes by where weights travel (Wang et al., "Characterizing ...", IISWC
# 2019)
#
# A step loads input over PCIe, computes, reads memory and exchanges weights. The class of a job
# says which media weights go over: none on one GPU, PCIe on several of a node, Ethernet and
# PCIe with parameter servers, NVLink or Ethernet and NVLink where workers reduce among
# themselves.


Class = Literal["1w1g", "1wng", "ps", "allreduce-local", "allreduce-cluster"]
GBIT = 1.0 / 8.0  # GB
MOST_LOCAL = 8


@frozen
class Media:
    """GB/s of each medium and TFLOP/s of a GPU, of which a part `efficiency` is reached.

    The values are the paper's base configuration, as far as it is known.
    """

    ethernet: float = 25.0 * GBIT
    pcie: float = 10.0
    nvlink: float = 50.0
    memory: float = 1000.0
    tflops: float = 11.0
    efficiency: float = 0.7


@frozen
class StepWork:
    """Work of one worker in a step: GB and TFLOP."""

    input_gb: float
    tflop: float
    memory_gb: float
    weights_gb: float


@frozen
class StageTimes:
    """Seconds of a step: loading input, computing, exchanging weights."""

    input_s: float
    compute_s: float
    weights_s: float

    @property
    def total_s(self) -> float:
        """All of it: parts do not overlap."""
        return self.input_s + self.compute_s + self.weights_s


def step_time(
    step: StepWork, kind: Class, media: Media | None = None, workers: int = 1
) -> StageTimes:
    """Return the time of a step; `workers` of one node load their input over the same PCIe.

    Parameter servers hold jobs whose workers are on nodes of their own.
    """
    on = media or Media()
    shared = workers if kind in ("1wng", "allreduce-local") else 1
    if shared > MOST_LOCAL:
        raise InvalidConfig(f"{workers} workers on one node", hint=f"at most {MOST_LOCAL}")
    paths = {
        "1w1g": (),
        "1wng": (on.pcie,),
        "ps": (on.ethernet, on.pcie),
        "allreduce-local": (on.nvlink,),
        "allreduce-cluster": (on.ethernet, on.nvlink),
    }
    e = on.efficiency
    compute = step.tflop / (e * on.tflops) + step.memory_gb / (e * on.memory)
    weights = sum(step.weights_gb / (e * speed) for speed in paths[kind])
    return StageTimes(shared * step.input_gb / (e * on.pcie), compute, weights)


def faster_network(gbit_s: float) -> Media:
    """The base configuration with another Ethernet."""
    return replace(Media(), ethernet=gbit_s * GBIT)
