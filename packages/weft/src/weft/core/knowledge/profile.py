"""A job's use of a device when it is alone there."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from weft.frozen import frozen

MOST_CPU_PART = 0.99  # something is done on the GPU


@frozen
class Profile:
    """One iteration of a job alone on what it asked for, and what it leaves to others.

    `stages` are the seconds an iteration spends on storage, CPU, GPU and network, or, where the
    first two were not told apart, on data, GPU and network; empty where they were not measured.
    Their sum need not be `step_s`: frameworks overlap stages. `gpu_use` and `bandwidth_use` are
    the busy parts, in [0, 1], of the processors and of the memory bus of a GPU. `tag` names
    the measurement: profiles with the same tag are of the same program at the same batch.
    `cpu_part` is the part of an iteration in which the GPU waits for the host, where that is known
    apart from the measurement; the busy parts have it in them.
    """

    step_s: float = 1.0
    stages: tuple[float, ...] = ()
    mem_gb: float = 0.0
    gpu_use: float = 1.0
    bandwidth_use: float = 1.0
    tag: str = ""
    cpu_part: float = 0.0

    def with_cpu_part(self, part: float) -> Profile:
        """The profile with a CPU stage, not measured, that takes `part` of the iteration."""
        if part <= 0.0:
            return self
        rest = 1.0 - min(part, MOST_CPU_PART)
        return replace(
            self,
            step_s=self.step_s / rest,
            gpu_use=self.gpu_use * rest,
            bandwidth_use=self.bandwidth_use * rest,
            cpu_part=1.0 - rest,
        )

    @property
    def busy_s(self) -> float:
        """Seconds of an iteration on the GPU's processors."""
        return self.stages[-2] if self.stages else self.gpu_use * self.step_s


@frozen
class Sensitivity:
    """Speed of a job by the CPU cores and the host memory it gets for each of its GPUs.

    `speeds[i][j]` is with `cpus[i]` cores and `mem_gb[j]` GB; both grids increase, and so do the
    speeds along them. 1 is the speed at the share in proportion to GPUs.
    """

    cpus: tuple[float, ...]
    mem_gb: tuple[float, ...]
    speeds: tuple[tuple[float, ...], ...]

    def at(self, cpus: float, mem_gb: float) -> float:
        """Speed between the points of the grid.

        Linear in each direction, so never falling; outside the grid as at its edge, but for
        cores below the first point, which count in proportion.
        """
        low, high, part = _between(self.cpus, cpus)
        below, above, rest = _between(self.mem_gb, mem_gb)
        less, more = self.speeds[low], self.speeds[high]
        slower = less[below] + rest * (less[above] - less[below])
        other = more[below] + rest * (more[above] - more[below])
        return (slower + part * (other - slower)) * min(cpus / self.cpus[0], 1.0)

    def relative_to(self, cpus: float, mem_gb: float) -> Sensitivity:
        """The sensitivity relative to another share in proportion to GPUs."""
        base = self.at(cpus, mem_gb)
        if base == 1.0 or base <= 0.0:
            return self
        return replace(self, speeds=tuple(tuple(v / base for v in row) for row in self.speeds))


def _between(grid: tuple[float, ...], value: float) -> tuple[int, int, float]:
    """The neighbours of a value in a grid, and how far it is on the way between them."""
    high = bisect_right(grid, value)
    if high == 0:
        return 0, 0, 0.0
    if high == len(grid):
        return high - 1, high - 1, 0.0
    return high - 1, high, (value - grid[high - 1]) / (grid[high] - grid[high - 1])
