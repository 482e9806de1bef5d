"""Recorded durations taken at face value: a job on what it asked for runs at speed 1."""

from __future__ import annotations

from dataclasses import dataclass

from weft.core.model import Allocation, Job
from weft.perf.restart import restart_s


@dataclass(frozen=True, slots=True)
class Replay:
    """Speed in proportion to GPUs, the same on every kind and wherever they are.

    `restart_cost` overrides what a restart costs; None lets the job's model say.
    """

    restart_cost: float | None = None

    def rate(self, job: Job, on: Allocation, kind: str) -> float:  # noqa: ARG002 - kind-blind
        """GPUs held over GPUs asked for."""
        asked = job.demand.gpus * job.demand.share
        return on.gpus * on.sharing.share / asked

    def restart(self, job: Job) -> float:
        """Seconds without progress after a restart."""
        return restart_s(job.model) if self.restart_cost is None else self.restart_cost
