"""How long a step takes by where weights travel (Wang et al., "Characterizing ...", IISWC 2019).

A step loads input over PCIe, computes, reads memory and exchanges weights. The class of a job says
which media weights go over: none on one GPU, PCIe on several of a node, Ethernet and PCIe with
parameter servers, NVLink or Ethernet and NVLink where workers reduce among themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from weft.core.errors import InvalidConfig
from weft.frozen import frozen

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
class Step:
    """What one worker moves and computes in a step: GB and TFLOP."""

    input_gb: float
    tflop: float
    memory_gb: float
    weights_gb: float


@frozen
class StepTime:
    """Seconds of a step: loading input, computing, exchanging weights."""

    input_s: float
    compute_s: float
    weights_s: float

    @property
    def total_s(self) -> float:
        """All of it: parts do not overlap."""
        return self.input_s + self.compute_s + self.weights_s

    @property
    def weights_part(self) -> float:
        """Of all the time, what goes to weights."""
        return self.weights_s / self.total_s


def step_time(step: Step, kind: Class, media: Media | None = None, workers: int = 1) -> StepTime:
    """How long a step takes; `workers` of one node load their input over the same PCIe.

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
    return StepTime(shared * step.input_gb / (e * on.pcie), compute, weights)


def gain(step: Step, to: Class, media: Media | None = None, workers: int = 1) -> float:
    """How many times as fast a job with parameter servers would be otherwise."""
    before = step_time(step, "ps").total_s
    return before / step_time(step, to, media, workers).total_s


def faster_network(gbit_s: float) -> Media:
    """The base configuration with another Ethernet."""
    return replace(Media(), ethernet=gbit_s * GBIT)
