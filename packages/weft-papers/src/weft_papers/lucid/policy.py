"""Lucid: profile briefly, order by predicted GPU-seconds, pack pairs that hardly slow each other.

Paper       Hu et al., "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep
            Learning Training Jobs", ASPLOS 2023.
Objective   mean completion time without changing a running job: no preemption, no elasticity.
Needs       an estimate of each job's remaining time; what a job does with a device, once
            it was profiled. An unmodified job is packed once it was profiled, or from the second
            run of its program on.
Controls    which jobs run, where, and which two share devices.
Cost        O(n log n) for n active jobs, then O(hosts) for each job of the queue.
Deviations  profiling is charged: a job enters the main queue when its `limit_s` in the corner are
            over, or without metrics after `patience` seconds of waiting for the corner. A profiled
            job goes on from a checkpoint where the authors discard the profiling run. The corner is
            the last `corner` nodes (one, for jobs of up to 8 GPUs; the authors have two of 135
            nodes for the same sizes), and none in clusters below four nodes or while a job needs
            them; it is not resized. Priority is the configured predictor's, not an explainable
            boosting machine's. The forecast of submissions is the mean of the last five
            ten-minute bins, and its threshold grows with the cluster. A job that was never
            profiled is packed only after `limit_s` of running, or if its program was watched in an
            earlier run. Virtual clusters are simulated
            one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import ceil
from typing import Literal

import numpy as np

from weft.core.errors import InvalidConfig
from weft.core.model.job import JobId
from weft.core.plan.about import About, Controls, Needs, Ties
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.taxonomy import (
    DeviceSharing,
    NeededKnowledge,
    Objective,
    Preemption,
    TopologyKnowledge,
    classify,
)
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.share.memory_order import doublings_left, order_memory
from weft.plural import say_gpus
from weft_papers.lucid.profiler_nodes import ProfilerNodes
from weft_papers.lucid.queue import MainQueue

# How busy the cluster will be: packing pays only when jobs queue.

BIN_S = 600.0
BINS = 5


def keeps_packing(bins: Sequence[float], quiet: float) -> bool:
    """Return true if the mean of some bins of submissions is above `quiet`: packing goes on."""
    return sum(bins) / len(bins) > quiet


@frozen
class Arrivals:
    """Submissions of the last five ten-minute bins, when the first came, and how many in total."""

    recent: tuple[float, ...] = ()
    first: float | None = None
    seen: float = 0.0

    def with_submissions(self, submitted: Sequence[float], now: float, seen: float) -> Arrivals:
        """Return the arrivals after some more submissions."""
        first = self.first
        if first is None and submitted:
            first = min(submitted)
        since = now - BINS * BIN_S
        recent = tuple(at for at in (*self.recent, *submitted) if at > since)
        return Arrivals(recent, first, seen)

    def recent_bins(self, now: float) -> list[float]:
        """Submissions in each of the last bins, latest first; fewer while the log is young."""
        age = 0.0 if self.first is None else now - self.first
        counts = [0.0] * min(BINS, max(1, ceil(age / BIN_S)))
        for at in self.recent:
            counts[min(int((now - at) // BIN_S), len(counts) - 1)] += 1.0
        return counts


EPS = 1e-6
VENUS_GPUS = 1080
ABOUT = About(
    "lucid",
    "Hu et al. 2023",
    needs=Needs.REMAINING,
    controls=Controls.SHARE,
    starves="a stream of shorter jobs",
    idles="a gang waits for nodes of its own, and profiling has nodes of its own",
    ties=Ties.NONE,
    taxonomy=classify(
        Objective.COMPLETION_TIME,
        NeededKnowledge.DURATIONS | NeededKnowledge.PROFILES,
        Preemption.NEVER,
        DeviceSharing.SIDE_BY_SIDE,
        TopologyKnowledge.CONSOLIDATED,
    ),
)


@frozen
class LucidMemory:
    """Recent submissions, jobs being profiled since when, and predictions for started jobs.

    `started` is in order of start, as the binder tries hosts.
    """

    arrivals: Arrivals = field(default_factory=Arrivals)
    corner: dict[JobId, float] = field(default_factory=dict)
    started: dict[JobId, float] = field(default_factory=dict)


@frozen
class Lucid:
    """Short jobs first, two on a GPU where both stay fast.

    `corner` nodes profile jobs of at most `factor` GPUs per node for `limit_s` seconds each;
    `packing` is on, off, or by the submissions of the last ten-minute bins: off where their mean
    is `quiet` or less for 1,080 GPUs, the size of the authors' cluster.
    """

    corner: int = 1
    factor: int = 8
    limit_s: float = 200.0
    patience: float = 600.0
    packing: Literal["auto", "on", "off"] = "auto"
    quiet: float = 2.0

    about = ABOUT

    def __post_init__(self) -> None:
        if self.corner < 0 or self.factor < 1 or self.limit_s <= 0.0:
            raise InvalidConfig(
                f"lucid: a corner of {self.corner} nodes, {say_gpus(self.factor)} per job and "
                f"{self.limit_s:g} s profiles nothing",
                hint="corner=0 does without one; factor at least 1, limit_s above 0",
            )

    def decide(self, view: View) -> Plan:
        """Profile, then start from the main queue what fits alone or in pairs."""
        kept = recall(view, LucidMemory)
        arrivals = _count(view, kept.arrivals)
        left = view.remaining()
        corner = ProfilerNodes(
            view, self.corner, self.factor * self.corner, self.limit_s, kept.corner
        )
        waiting = corner.release()
        newcomers = self._unprofiled(view, corner, waiting)
        corner.admit(newcomers)
        main = [row for row in waiting if row not in newcomers]
        corner.close()
        draft = MainQueue(view, left * view.table.gpus, self._measured(view), kept.started, corner)
        on = self.packing == "on" or (
            self.packing == "auto"
            and keeps_packing(arrivals.recent_bins(view.now), self._quiet(view))
        )
        draft.run(main, packing=on)
        patience = [view.job(r).submitted + self.patience for r in newcomers if r not in corner]
        wakes = [at for at in (*corner.next_end(), *patience) if at > view.now]
        changes = {**corner.changes, **draft.changes}
        memory = LucidMemory(arrivals, corner.since, draft.started)
        wake_at, order = min(wakes, default=None), order_memory(view, changes, doublings_left)
        return Plan(changes, wake_at=wake_at, memory=memory, memory_order=order)

    def _quiet(self, view: View) -> float:
        return self.quiet * view.cluster.gpus / VENUS_GPUS

    def _measured(self, view: View) -> Bools:
        """Rows whose use of a device is known."""
        return np.asarray((view.ran() >= self.limit_s - EPS) | _watched(view))

    def _unprofiled(self, view: View, corner: ProfilerNodes, waiting: list[int]) -> list[int]:
        """Rows that go through the corner first."""
        rows = [row for row in waiting if corner.may_profile(row)]
        known = self._measured(view)
        fresh = [row for row in rows if not known[row]]
        return [r for r in fresh if view.now < view.job(r).submitted + self.patience]


def _watched(view: View) -> Bools:
    """Rows that told nothing, and that were watched, now or in an earlier run of their program."""
    sharing, watched = view.sharing(), np.zeros(len(view.table), dtype=bool)
    for row, job in enumerate(view.table.jobs):
        known = bool(job.model) or "gpu_util" in job.hints or job.launch is None
        watched[row] = not known and sharing.profile(job).gpu_use < 1.0
    return watched


def _count(view: View, arrivals: Arrivals) -> Arrivals:
    """Submissions since the last decision that are still here, added to the log."""
    seq = view.table.seq
    new = view.table.submitted[seq >= arrivals.seen]
    seen = float(seq[-1]) + 1.0 if len(seq) else arrivals.seen
    return arrivals.with_submissions([float(at) for at in new], view.now, max(seen, arrivals.seen))
