"""What really happens to jobs: progress, ends, deaths. Nothing here is visible to a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.core.model import Allocation, Job, JobId, NodeId
from weft.core.ports import PerfModel
from weft.core.table import Floats
from weft.core.trace import Trace

NEVER = np.inf


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of a job on one allocation, for timelines and accounts."""

    seq: int
    start: float
    end: float
    on: Allocation


class Physics:
    """True progress of every job of a trace, as linear meters by submission number.

    `checkpoint_s` is how long a stop takes; `checkpoint_every` is how much progress a job can
    lose when its node dies.
    """

    def __init__(
        self,
        trace: Trace,
        perf: PerfModel,
        *,
        checkpoint_s: float = 0.0,
        checkpoint_every: float = 1800.0,
    ) -> None:
        self.trace = trace
        self.checkpoint_s = checkpoint_s
        self.seq_of: dict[JobId, int] = {job.id: i for i, (job, _) in enumerate(trace)}
        n = len(trace)
        self.length: Floats = np.array([truth.length for _, truth in trace])
        self.starts = np.zeros(n, dtype=np.int64)
        self.first_start = np.full(n, np.nan)
        self.ended_at = np.full(n, np.nan)
        self.gpu_s = np.zeros(n)
        self.ran_s = np.zeros(n)
        self.lost_s = np.zeros(n)
        self.runs: list[Run] = []
        self._perf = perf
        self._every = checkpoint_every
        self._base, self._rate, self._since = np.zeros(n), np.zeros(n), np.zeros(n)
        self._died = np.zeros(n, dtype=np.int64)
        self._on: dict[int, tuple[float, float, Allocation]] = {}

    def remaining(self, seq: Floats, now: float) -> Floats:
        """True seconds of work left, at the speed of the allocation asked for."""
        i = seq.astype(np.intp)
        # A job that is still restarting makes no progress until `since`.
        done = self._base[i] + self._rate[i] * np.maximum(now - self._since[i], 0.0)
        return np.maximum(self.length[i] - done, 0.0)

    def lengths(self, seq: Floats, now: float) -> Floats:  # noqa: ARG002 - same shape as remaining
        """True length of each job."""
        return self.length[seq.astype(np.intp)]

    def start(self, now: float, job: Job, on: Allocation, kind: str) -> tuple[float, bool]:
        """Begin a run; return when it will end by itself, and whether by death."""
        seq = self.seq_of[job.id]
        delay = self._perf.restart(job) if self.starts[seq] else 0.0
        if not self.starts[seq]:
            self.first_start[seq] = now
        self.starts[seq] += 1
        rate = self._perf.rate(job, on, kind)
        base = float(self._base[seq])
        self._rate[seq], self._since[seq] = rate, now + delay
        self._on[seq] = (now, base, on)
        failures = self.trace.jobs[seq][1].failures
        died = int(self._died[seq])
        fatal = died < len(failures) and failures[died] < self.length[seq]
        goal = max(failures[died], base) if fatal else float(self.length[seq])
        return now + delay + (goal - base) / rate, fatal

    def halt(self, now: float, seq: int, *, crashed: bool = False) -> None:
        """A run is over: settle progress; a crash loses what was not checkpointed."""
        run = self._on.pop(seq, None)
        if run is None:
            return
        began, base, on = run
        self._base[seq] += self._rate[seq] * max(now - self._since[seq], 0.0)
        self._rate[seq] = 0.0
        if crashed:
            done = float(self._base[seq])
            kept = base + (done - base) // self._every * self._every if self._every else done
            self._base[seq] = kept
            self.lost_s[seq] += done - kept
        self.gpu_s[seq] += (now - began) * on.gpus * on.sharing.share
        self.ran_s[seq] += now - began
        self.runs.append(Run(seq, began, now, on))

    def running_on(self, node: NodeId) -> list[int]:
        """Jobs with a run that uses `node`."""
        return [
            seq
            for seq, (_, _, on) in self._on.items()
            if any(part.node == node for part in on.slices)
        ]

    def die(self, now: float, seq: int) -> None:
        """The run reached its next point of failure."""
        self._died[seq] += 1
        self.halt(now, seq, crashed=True)

    def finish(self, now: float, seq: int) -> None:
        """The job is done."""
        self.halt(now, seq)
        self.ended_at[seq] = now
