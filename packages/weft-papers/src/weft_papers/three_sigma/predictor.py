"""Distributions by the attribute that told best so far (Park et al., "3Sigma", EuroSys 2018).

Each value of an attribute (user, model, size, hour of submission) keeps the lengths of its last
ends, and four experts on them: mean, median, a mean that decays by 0.6 an end, and the mean of the
newest. The attribute whose best expert had the least error so far gives the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from weft.core.errors import bad_values
from weft.core.events.job_end import Ended
from weft.core.knowledge.prediction import INTERVAL, LEAST_S
from weft.core.model.job import Job, JobId
from weft.core.state.cells import Floats
from weft.core.state.table import JobTable
from weft.predict.alike.mixture import WeightedLengths, mean, quantile
from weft.predict.by_job import ByJob

BINS = 80
NEWEST = 5
DECAY = 0.6


class Attribute:
    """The ends of one value of an attribute, and how far off its experts were."""

    __slots__ = ("decayed", "errors", "lengths", "seen")

    def __init__(self) -> None:
        self.lengths: list[float] = []
        self.errors = [0.0] * 4
        self.decayed = 0.0
        self.seen = 0

    def add(self, length: float) -> None:
        """Score the experts, then learn."""
        if self.lengths:
            for i, prediction in enumerate(self._experts()):
                self.errors[i] += abs(prediction - length) / max(length, 1.0)
            self.seen += 1
        first = not self.lengths
        self.decayed = length if first else DECAY * self.decayed + (1.0 - DECAY) * length
        self.lengths = [*self.lengths[-BINS + 1 :], length]

    def error(self) -> float:
        """Error of the best expert, per end; infinite before there was one to score."""
        return min(self.errors) / self.seen if self.seen else float("inf")

    def _experts(self) -> tuple[float, float, float, float]:
        all_ = self.lengths
        newest = all_[-NEWEST:]
        return sum(all_) / len(all_), median(all_), self.decayed, sum(newest) / len(newest)


@dataclass
class ThreeSigma(ByJob):
    """The lengths of the best attribute that exceed what a job has run.

    Beyond all of them a job is expected to end 2, 4, 8, ... times `cycle_s` later.
    """

    cycle_s: float = 60.0

    label = "three-sigma"

    def __post_init__(self) -> None:
        super().__init__()
        if not self.cycle_s > 0.0:
            raise bad_values("three-sigma", self, "cycle_s", "it is above 0")
        self._known: dict[str, Attribute] = {}
        self._chosen: dict[JobId, Attribute | None] = {}

    def estimate(self, job: Job) -> float:
        """The mean of what is known about jobs alike; infinite where nothing is."""
        sample = self._sample(self._best(job), 0.0)
        return np.inf if sample is None else mean(sample)

    def remaining(self, table: JobTable, now: float) -> Floats:
        """The mean of what exceeds the time executed."""
        return np.array(
            [
                np.inf if sample is None else max(mean(sample) - ran, LEAST_S)
                for sample, ran in self._samples(table, now)
            ]
        )

    def quantiles(self, table: JobTable, now: float, p: Sequence[float] = INTERVAL) -> Floats:
        """Rows x p."""
        rows = [
            np.full(len(p), np.inf) if sample is None else quantile(sample, p) - ran
            for sample, ran in self._samples(table, now)
        ]
        left: Floats = np.array(rows, dtype=float).reshape(len(table), len(p))
        return np.maximum(left, LEAST_S)

    def _samples(self, table: JobTable, now: float) -> list[tuple[WeightedLengths | None, float]]:
        rows = zip(table.jobs, table.ran(now).tolist(), strict=True)
        return [(self._sample(self._best(job), ran), ran) for job, ran in rows]

    def _sample(self, best: Attribute | None, ran: float) -> WeightedLengths | None:
        if best is None:
            return None
        longer = [x for x in best.lengths if x > ran]
        if not longer:
            over = max(ran - max(best.lengths), 0.0)
            longer = [ran + self.cycle_s * 2.0 ** int(np.log2(1.0 + over / self.cycle_s))]
        return WeightedLengths(np.array(longer), np.ones(len(longer)))

    def _best(self, job: Job) -> Attribute | None:
        if job.id not in self._chosen:
            known = [self._known[key] for key in _attributes(job) if key in self._known]
            self._chosen[job.id] = min(known, key=Attribute.error, default=None)
        return self._chosen[job.id]

    def note_end(self, ended: Ended) -> None:
        """Every attribute of the job learns."""
        self._chosen.clear()
        for key in _attributes(ended.job):
            self._known.setdefault(key, Attribute()).add(max(ended.length, 1.0))

    def save(self) -> Any:
        return {k: [a.lengths, a.errors, a.decayed, a.seen] for k, a in self._known.items()}

    def load(self, saved: Any) -> None:
        known = {}
        for key, (lengths, errors, decayed, seen) in saved.items():
            known[key] = attribute = Attribute()
            attribute.lengths, attribute.errors, attribute.decayed, attribute.seen = (
                lengths,
                errors,
                decayed,
                seen,
            )
        self._known = known
        self._chosen.clear()


def _attributes(job: Job) -> list[str]:
    size = f"{job.demand.gpus * job.demand.share:g}"
    attributes = {
        "user": job.owner,
        "model": job.model or job.app,
        "name": job.launch.name if job.launch is not None else "",
        "size": size,
        "user and size": f"{job.owner} {size}" if job.owner else "",
        "hour": str(int(job.submitted // 3600) % 24),
    }
    return [f"{name}={value}" for name, value in attributes.items() if value]
