"""What one job does with a device when it is alone there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """One iteration of a job alone on what it asked for, and what it leaves to others.

    `stages` are the seconds an iteration spends on storage, CPU, GPU and network, or, where the
    first two were not told apart, on data, GPU and network; empty where nobody measured them.
    Their sum need not be `step_s`: frameworks overlap stages. `gpu_use` and `bandwidth_use` are
    the busy parts, in [0, 1], of the processors and of the memory bus of a GPU. `tag` names
    the measurement: profiles with the same tag are of the same program at the same batch.
    """

    step_s: float = 1.0
    stages: tuple[float, ...] = ()
    mem_gb: float = 0.0
    gpu_use: float = 1.0
    bandwidth_use: float = 1.0
    tag: str = ""

    @property
    def busy_s(self) -> float:
        """Seconds of an iteration on the GPU's processors."""
        return self.stages[-2] if self.stages else self.gpu_use * self.step_s
