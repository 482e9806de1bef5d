"""The truth for jobs that train in regimes: they report their epoch and batch size as they go.

A job's length is seconds at the speed of each regime on what it asked for, so a second of work is a
second whatever the regime; what changes is how much of the training that second is.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from weft.core.errors import InvalidConfig
from weft.core.events.report import Report
from weft.core.model.job import Allocation, Job
from weft.core.model.trace import Truth
from weft.core.protocols import Pace, PerfModel, SimulatedJob
from weft.formulas.training.regimes import Regimes, Runs, regimes_of
from weft.frozen import frozen

EPS = 1e-6


@frozen
class InRegimes:
    """Jobs with a schedule by their regimes, other jobs by `base`."""

    base: PerfModel

    steady = False

    def simulate_job(self, job: Job, truth: Truth) -> SimulatedJob:
        """The behaviour of one job."""
        inner = self.base.simulate_job(job, truth)
        if not truth.schedule:
            return inner
        declared = regimes_of(job)
        if declared is None or not {batch for batch, _ in truth.schedule} <= set(declared.epoch_s):
            raise InvalidConfig(
                f"job {job.id!r} changes to batch sizes that it does not declare",
                hint="give it hints epochs, regime0_batch, regime0_epoch_s, ...",
            )
        return Adapting(inner, declared, truth.schedule, truth.length)

    def restart(self, job: Job, *, first: bool) -> float:
        """As elsewhere."""
        return self.base.restart(job, first=first)


class Adapting:
    """A job that changes its batch size at epochs of its schedule."""

    __slots__ = ("_declared", "_ends", "_inner", "_runs", "_scale")

    def __init__(self, inner: SimulatedJob, declared: Regimes, runs: Runs, length: float) -> None:
        self._inner, self._declared, self._runs = inner, declared, runs
        seconds = [declared.epoch_s[batch] * epochs for batch, epochs in runs]
        # A trace that was stretched has all its epochs stretched.
        self._scale = length / sum(seconds)
        self._ends = [end * self._scale for end in accumulate(seconds)]

    def begin(self, on: Allocation, kind: str) -> None:
        """Take note of the size."""
        self._inner.begin(on, kind)

    def pace(self, done: float, until_tick: float) -> Pace:
        """The speed of the allocation, until the regime or the round ends."""
        pace = self._inner.pace(done, until_tick)
        run = min(bisect_right(self._ends, done + EPS), len(self._runs) - 1)
        batch, epochs = self._runs[run]
        epoch_s = self._declared.epoch_s[batch] * self._scale
        since = done - (self._ends[run] - epochs * epoch_s)
        before = sum(n for _, n in self._runs[:run])
        report = Report(epoch=float(before + int(since / epoch_s + 1e-6)), batch=float(batch))
        left = max(self._ends[run] - done, 0.0)
        seconds = left / pace.rate if pace.rate > 0.0 and run < len(self._runs) - 1 else until_tick
        return Pace(pace.rate, min(pace.seconds, until_tick, seconds), report)
