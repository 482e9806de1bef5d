"""The history of a run, job by job: all that metrics are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from weft.core.state.cells import Floats
from weft.core.state.table import Bools, Rows
from weft.formulas.fairness.shares import (
    JobTimes,
    Shares,
    Stretches,
    divide_time,
    job_ratios,
    quotas_of,
    tenant_ratios,
    weigh_owners,
    window_edges,
)
from weft.formulas.fragmentation import Idle
from weft.formulas.statistics import (
    HOUR,
    contention,
    finish_time_fairness,
    mean,
    static_finish_time_fairness,
)
from weft.frozen import frozen

MOST_WINDOWS = 240
NEVER_IDLE = Idle()


@frozen
class NodesSlept:
    """Seconds of nodes asleep, times that nodes were woken, how many were, and what jobs waited.

    `delay_s` is one boot time for each job that waited when nodes were woken. `gpu_j` are the
    joules that their GPUs would have drawn idle, where the power of the kind is known.
    """

    node_s: float
    wake_ups: int
    woken: int
    delay_s: float
    gpu_j: float = 0.0


@frozen
class LoanHistory:
    """The history of machines that came and went.

    GPU-seconds that were lent and that jobs held of them; machines that were given back, and jobs
    that were stopped or lost a part of their GPUs by that.
    """

    lent_s: float
    used_s: float
    returned: int
    stopped: int
    scaled_in: int

    @property
    def used_part(self) -> float:
        """Return the part of the lent GPU time that was used."""
        return self.used_s / self.lent_s if self.lent_s else 0.0


@dataclass(frozen=True)
class RunOutcome:
    """The history of each job of a run, in order of submission; NaN where it never did.

    `held` is which job held how many GPUs when; `owners` and `tenants` say whose jobs they were,
    `weights` what users and tenants are entitled to, 1 where none is named. `utility` and
    `admitted` are there where jobs say what they are worth, `reached` where losses are followed:
    seconds from submission to a part of all that the loss falls. `loaned` is there where machines
    were lent, `nodes_slept` where they could sleep, `deadline` where jobs have
    any (NaN: none); `spot` are jobs that give way to others. `idle` is what no job held, where
    it is known which devices were held.
    """

    submitted: Floats
    ended: Floats
    ran_s: Floats
    length: Floats
    need: Floats
    gpu_s: Floats
    starts: Rows
    gpus: int
    owners: Sequence[str]
    tenants: Sequence[str]
    held: Stretches
    weights: Mapping[str, float] = field(default_factory=dict)
    preemptions: int = 0
    decisions: int = 0
    utility: float | None = None
    admitted: float | None = None
    reached: Mapping[float, Floats] = field(default_factory=dict)
    loaned: LoanHistory | None = None
    idle: Idle = NEVER_IDLE
    nodes_slept: NodesSlept | None = None
    deadline: Floats = field(default_factory=lambda: np.zeros(0))
    spot: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @cached_property
    def done(self) -> Bools:
        return ~np.isnan(self.ended)

    @cached_property
    def jct(self) -> Floats:
        """Completion times of the finished."""
        return self.ended[self.done] - self.submitted[self.done]

    @cached_property
    def waited(self) -> Floats:
        """Seconds without devices of the finished."""
        waited = self.jct - self.ran_s[self.done]
        waited[np.abs(waited) < 1e-6] = 0.0  # differences of large times are not exact
        return waited

    @property
    def short(self) -> Bools:
        """Jobs below the median length of the finished."""
        lengths = self.length[self.done]
        return lengths < (np.median(lengths) if len(lengths) else 0.0)

    def slowdown(self, floor_s: float) -> Floats:
        """Bounded slowdowns of the finished, with shorter lengths taken as `floor_s`."""
        return np.maximum(self.jct / np.maximum(self.length[self.done], floor_s), 1.0)

    @property
    def wasted_s(self) -> Floats:
        """GPU-seconds that each of the finished held beyond what its length asks for."""
        at = self.done
        wasted = self.gpu_s[at] - self.length[at] * self.need[at]
        wasted[wasted < 1e-6] = 0.0  # as above
        return wasted

    @cached_property
    def crowd(self) -> tuple[float, int]:
        """Unfinished jobs: time average and maximum."""
        return contention(self.submitted[self.done], self.ended[self.done])

    @cached_property
    def deadlines(self) -> tuple[int, int, int] | None:
        """Jobs that ended by their deadline, later, and never; None where no job has one."""
        firm = np.isfinite(self.deadline)
        if not firm.any():
            return None
        ended = self.ended[firm]
        met = int((ended <= self.deadline[firm] + 1e-6).sum())
        never = int(np.isnan(ended).sum())
        return met, len(ended) - met - never, never

    @cached_property
    def spot_hours(self) -> tuple[int, int] | None:
        """Hours of spot jobs that were kept and broken; None where no such job ever ran.

        A run without a stop is as many hours as it has whole ones, and one that is kept if the job
        ended then and broken if it went on later.
        """
        if not self.spot.any():
            return None
        kept = broken = 0
        held, mine = self.held, self.spot[self.held.row]
        if not mine.any():
            return None
        rows, begin, end = held.row[mine], held.start[mine], held.end[mine]
        order = np.lexsort((begin, rows))
        rows, begin, end = rows[order], begin[order], end[order]
        joined = (rows[1:] == rows[:-1]) & (begin[1:] - end[:-1] < 1e-6)
        first = np.flatnonzero(np.append(True, ~joined))
        last = np.append(first[1:], len(rows)) - 1
        for row, since, until in zip(rows[first], begin[first], end[last], strict=True):
            kept += int((until - since) // HOUR)
            ended = abs(self.ended[row] - until) < 1e-6
            kept, broken = kept + ended, broken + (not ended)
        return kept, broken

    def waited_of(self, which: Bools) -> float:
        """Mean seconds without devices of some jobs, those that finished."""
        return mean(self.waited[which[self.done]])

    @cached_property
    def makespan(self) -> float:
        """Seconds from the first submission to the last end."""
        ended = self.ended[self.done]
        return float(ended.max() - self.submitted.min()) if len(ended) else 0.0

    @cached_property
    def fairness(self) -> Floats:
        """Finish-time fairness of the finished."""
        at = self.done
        return finish_time_fairness(
            self.submitted[at], self.ended[at], self.length[at], self.need[at], self.gpus
        )

    @cached_property
    def static_fairness(self) -> Floats:
        """Finish-time fairness of the finished as Shockwave counts it."""
        at = self.done
        return static_finish_time_fairness(
            self.jct, self.length[at], len(self.submitted) / max(self.gpus, 1)
        )

    @cached_property
    def span(self) -> tuple[float, float]:
        """The first submission, and when the last GPU was given back."""
        begin = float(self.submitted.min(initial=np.inf))
        return (begin, float(self.held.end.max(initial=begin))) if np.isfinite(begin) else (0, 0)

    @cached_property
    def shares(self) -> Shares:
        """GPU time of users against their entitlement, hour by hour."""
        return self.shares_at(window_edges(*self.span, HOUR, MOST_WINDOWS))

    def shares_at(self, edges: Floats) -> Shares:
        """Shares in other windows."""
        return divide_time(
            self.owners,
            self.submitted,
            self.ended,
            self.need,
            self.held,
            self.gpus,
            edges,
            weigh_owners(zip(self.owners, self.tenants, strict=True), self.weights),
        )

    @cached_property
    def job_ltgf(self) -> Floats:
        """Long-term GPU-time fairness of the finished."""
        return job_ratios(*self._ltgf_terms)[self.done]

    @cached_property
    def tenant_ltgf(self) -> Floats:
        """Long-term GPU-time fairness of tenants with a finished job."""
        return np.array(list(tenant_ratios(*self._ltgf_terms).values()))

    @property
    def _ltgf_terms(self) -> tuple[JobTimes, dict[str, float]]:
        jobs = JobTimes(self.tenants, self.submitted, self.ended, self.need, self.gpu_s)
        return jobs, quotas_of(self.tenants, self.gpus, self.weights)

    @cached_property
    def restarts(self) -> Floats:
        """Starts of each job after its first."""
        return np.maximum(self.starts - 1, 0).astype(float)

    @property
    def utilization(self) -> float:
        """GPU time held, over all that there was."""
        lent_s = 0.0 if self.loaned is None else self.loaned.lent_s
        capacity = self.gpus * self.makespan + lent_s
        return float(self.gpu_s.sum()) / capacity if capacity else 0.0

    @property
    def fragmented_gpus(self) -> float:
        """Idle GPUs that a typical job could not use, on average."""
        begin, end = self.span
        return self.idle.fragmented_gpu_s / (end - begin) if end > begin else 0.0

    def reached_h(self, part: float) -> float | None:
        """Mean hours until a part of the fall of the loss; None where losses are not followed."""
        times = self.reached.get(part)
        return None if times is None else mean(times) / HOUR
