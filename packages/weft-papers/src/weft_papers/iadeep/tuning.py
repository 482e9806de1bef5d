"""Tuning the batch sizes of the jobs on one device, measurement by measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.core.knowledge.knowledge import TunableBatch
from weft.core.model.job import JobId
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft_papers.iadeep.bayesian_search import Point, has_stalled, next_point

LEAST_NOISE = 1e-6
PARTS = 32  # steps of a job's grid of batch sizes


# ---- The quantities of IADeep: gradient noise, interference, and its grids


def noise_scale(batch: int, small: float, large: float) -> float:
    """Gradient noise scale from squared gradient norms at a batch and at twice that batch."""
    double = 2 * batch
    signal = abs((double * large - batch * small) / (double - batch))
    noise = max((small - large) / (1.0 / batch - 1.0 / double), LEAST_NOISE)
    return noise / signal


def interference(stretches: Sequence[float]) -> float:
    """Sum of relative slowdowns of jobs on a device."""
    return sum(stretch - 1.0 for stretch in stretches)


def sizes_to_search(batch: int, most: int | None = None) -> list[int]:
    """Batch sizes to search for a job that was submitted with `batch`, at most `most`."""
    low = max(int(batch // 1.5) // 2 * 2, 1)
    step = max((2 * batch - low) // PARTS, 1)
    sizes = [size for size in range(low, 2 * batch, step) if most is None or size <= most]
    return sizes or [batch]


@frozen
class TuningSession:
    """A device being tuned: its jobs, what was measured, and what is being measured until when."""

    jobs: tuple[JobId, ...]
    asked: Point
    until: float
    points: tuple[Point, ...] = ()
    values: tuple[float, ...] = ()

    @property
    def best(self) -> Point:
        """The batch sizes with the least degradation measured so far."""
        return self.points[self.values.index(min(self.values))] if self.values else self.asked

    def describe(self, at: int, most: int) -> str:
        """The search as the job at a position may see it."""
        trial = f"batch {self.asked[at]} is on trial, {len(self.values) + 1} of at most {most}"
        if not self.values:
            return f"{trial}: the first, as it was submitted"
        return f"{trial}; best so far {self.best[at]}, {self._gain}"

    def summarise(self, at: int) -> str:
        """The search when it is over."""
        return f"batch {self.best[at]} was the best of {len(self.values)}, {self._gain}"

    @property
    def _gain(self) -> str:
        gain = 1.0 - min(self.values) / self.values[0]
        return f"{gain:.0%} less degradation than at first"

    def with_result(self, value: float) -> TuningSession:
        """Return the session with the result of the point that was asked."""
        return replace(self, points=(*self.points, self.asked), values=(*self.values, value))


@frozen
class DeviceTuner:
    """Rules of a search: when to stop, and how long a measurement takes."""

    probes: int
    patience: int
    probe_s: float
    gain: float = 0.01

    def next_session(
        self,
        session: TuningSession,
        known: Mapping[JobId, TunableBatch],
        most: Mapping[JobId, int | None],
        room_gb: float,
        now: float,
    ) -> TuningSession | None:
        """The session with its next measurement, or None when it is over.

        Only batch sizes whose memory together fits in `room_gb` are ever asked for.
        """
        done = len(session.values) >= self.probes
        if done or has_stalled(session.values, self.patience, self.gain):
            return None
        tuned = [known[job] for job in session.jobs]
        axes = [sizes_to_search(known[job].init, most[job]) for job in session.jobs]

        def feasible(points: Floats) -> Bools:
            return fits(tuned, points, room_gb)

        asked = next_point(axes, session.points, session.values, feasible)
        if asked is None:
            return None
        return replace(session, asked=asked, until=now + self.probe_s)


def fits(tuned: Sequence[TunableBatch], points: Floats, room_gb: float) -> Bools:
    """At which rows of batch sizes the jobs' memory fits."""
    need = sum(job.fixed_gb for job in tuned) + points @ [job.sample_gb for job in tuned]
    return np.asarray(need <= room_gb)
