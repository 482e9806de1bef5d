"""What was seen of jobs that say nothing of themselves, as a profile.

By the watcher inside (steps, waiting for data) and from outside (device memory and use).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from weft.core.events.report import Report
from weft.core.knowledge.profile import MOST_CPU_PART, Profile


class SeenProfile(NamedTuple):
    """What was seen of a stranger: the most memory, the busiest time, the shortest step.

    `data` is the part of a step that waits for data. A part that nobody could see is negative.
    """

    mem_gb: float = 0.0
    busy: float = -1.0
    step_s: float = 0.0
    data: float = -1.0

    def add(self, report: Report) -> SeenProfile:
        """With another report; before its first step a job is not busy yet."""
        seen = self._replace(mem_gb=max(self.mem_gb, report.mem_gb or 0.0))
        if not report.steps:
            return seen
        step_s = report.step_s or self.step_s
        return seen._replace(
            busy=max(self.busy, -1.0 if report.sm is None else report.sm),
            step_s=min(step_s, self.step_s or step_s),
            data=max(self.data, -1.0 if report.data_s is None else read_cpu_part(report)),
        )

    @property
    def use(self) -> float | None:
        """The busy part of a device: as the driver tells, else while nobody waits for data."""
        if self.busy > 0.0:
            return self.busy
        return None if self.data < 0.0 else 1.0 - min(self.data, MOST_CPU_PART)

    @property
    def stages(self) -> tuple[float, ...]:
        """Seconds of a step on data, GPU and network; empty if the data stage is unknown."""
        if self.data < 0.0 or self.use is None:
            return ()
        return self.data * self.step_s, self.use * self.step_s, 0.0

    def fill(self, unknown: Profile) -> Profile:
        """A profile that was not declared; its memory bus is assumed as busy as the device."""
        if self.use is None:
            return replace(unknown, mem_gb=self.mem_gb)
        return replace(
            unknown,
            step_s=self.step_s or unknown.step_s,
            stages=self.stages,
            mem_gb=self.mem_gb,
            gpu_use=self.use,
            bandwidth_use=self.use,
            cpu_part=min(max(self.data, 0.0), MOST_CPU_PART),
        )


def read_cpu_part(report: Report) -> float:
    """The fraction of a step in which the GPU waited for data; 0 if unknown."""
    if report.data_s is None or not report.step_s:
        return 0.0
    seconds = report.step_s - (report.token_s or 0.0)
    return min(report.data_s / seconds, 1.0) if seconds > 0.0 else 0.0
