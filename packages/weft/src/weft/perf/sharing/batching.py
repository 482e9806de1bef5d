"""What running jobs show of their batch sizes: memory, noise, and progress beside that alone.

A real job's step times are not known beforehand. What it reports at the batch it was
submitted with is what others are measured against: the quickest step seen there is taken to be
the one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.core.events.report import Report
from weft.core.knowledge.knowledge import TunableBatch
from weft.core.model.job import Job, JobId
from weft.formulas.sharing.degradation import degradation

PROPORTIONAL = 0.75  # of the memory at the first batch, until a larger one was seen


@dataclass(slots=True)
class Shown:
    """One job: peaks of memory by batch, its quickest step at the first one, and the last report.

    `noise` is the gradient noise scale it measures.
    """

    peaks: dict[int, float] = field(default_factory=dict)
    alone_s: float = 0.0
    batch: int = 0
    step_s: float = 0.0
    noise: float = 0.0

    def add(self, init: int, batch: int, step_s: float, report: Report) -> None:
        """Another report, at a batch."""
        self.batch, self.step_s = batch, step_s
        self.peaks.setdefault(batch, report.mem_gb or 0.0)
        self.noise = report.noise or self.noise
        if batch == init:
            self.alone_s = min(step_s, self.alone_s or step_s)

    def known(self, init: int) -> TunableBatch | None:
        """None before it trained at its first batch."""
        if not self.alone_s:
            return None
        first = self.peaks[init]
        grown = [(gb - first) / (size - init) for size, gb in self.peaks.items() if size > init]
        sample_gb = max(grown, default=PROPORTIONAL * first / init)
        return TunableBatch(init, first - sample_gb * init, sample_gb, self.noise or float(init))

    def pace(self, init: int) -> float | None:
        """Progress now as a part of that alone at the first batch."""
        known = self.known(init)
        if known is None:
            return None
        stretch, growth = self.step_s / self.alone_s, self.batch / init
        return 1.0 / degradation(stretch, growth, known.efficiency(self.batch))


@dataclass(slots=True)
class MeasuredBatching:
    """Of all running jobs on one GPU whose batch may be changed."""

    _shown: dict[JobId, Shown] = field(default_factory=dict)

    def observe(self, job: Job, report: Report) -> None:
        """Take in a report that tells about a step and its batch."""
        if job.batch is None or job.demand.gpus != 1 or not report.step_s or not report.batch:
            return
        shown = self._shown.setdefault(job.id, Shown())
        shown.add(job.batch.init, round(report.batch), report.step_s, report)

    def known(self, job: Job) -> TunableBatch | None:
        """What may be known about a job; None before it reported at its first batch."""
        shown = self._shown.get(job.id)
        return None if shown is None or job.batch is None else shown.known(job.batch.init)

    def pace(self, job: Job) -> float | None:
        """A job's progress now as a part of that alone; None where it does not tell."""
        shown = self._shown.get(job.id)
        return None if shown is None or job.batch is None else shown.pace(job.batch.init)

    def forget(self, job: Job) -> None:
        """It has left."""
        self._shown.pop(job.id, None)

    def save(self) -> dict[str, Any]:
        """As values that JSON has."""
        return {
            job: {
                "peaks": [[size, gb] for size, gb in shown.peaks.items()],
                "rest": [shown.alone_s, shown.batch, shown.step_s, shown.noise],
            }
            for job, shown in self._shown.items()
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        for job, shown in saved.items():
            peaks = {int(size): float(gb) for size, gb in shown["peaks"]}
            self._shown[JobId(job)] = Shown(peaks, *shown["rest"])
