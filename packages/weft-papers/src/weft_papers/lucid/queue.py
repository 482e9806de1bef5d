"""The main queue: shortest predicted service first, in pairs where allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from weft.core.knowledge.profile import Profile
from weft.core.model.job import Allocation, JobId, Sharing
from weft.core.plan.view import View
from weft.core.state.cells import Floats
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.place.gangs import Placer, consolidate, fewest_nodes
from weft_papers.lucid.profiler_nodes import ProfilerNodes

# Sharing scores: how much a job suffers and disturbs beside another on its devices.
# The thresholds are our own fit of a small decision tree to the authors' solo measurements
# (`published_scores.py`): memory-bus use decides first, then GPU use. Mixed precision
# and peak memory were offered to the tree and bought nothing that a leaf of two workloads would
# not explain, so they are pruned; it agrees with 54 of the 66 labels, the full tree with 56.
TINY, MEDIUM, JUMBO = 0, 1, 2
BUS_BUSY = 0.305
GPU_BUSY = 0.25
MOST = 2  # the scores of a pair sum to at most this


class MainQueue:
    """The main queue's part of a plan in the making.

    `service` is each row's predicted GPU-seconds; `measured` says whose use of a device is
    known; `started` are the predicted GPU-seconds of running jobs when they started, in that order.
    """

    def __init__(
        self,
        view: View,
        service: Floats,
        measured: Bools,
        started: dict[JobId, float],
        corner: ProfilerNodes,
        place: Placer = consolidate,
    ) -> None:
        self.view = view
        self._find = place
        self.changes: dict[JobId, Allocation | None] = {}
        self._service = service
        self._measured = measured
        self._held = {job: on for job, on in view.held().items() if job not in corner.changes}
        mine = [job for job in self._held if job not in corner.since]
        self.started = {job: known for job, known in started.items() if job in mine}
        for job in mine:  # started by another policy
            self.started.setdefault(job, float(service[view.table.row(job)]))
        self._rows = {job: view.table.row(job) for job in self.started}
        self._spread()
        self._hosts = {job: self._host(job) for job in self.started if self._alone(job)}

    def run(self, rows: list[int], *, packing: bool) -> None:
        """Start what fits: shortest first, in pairs where allowed; else strictly in order."""
        order = sorted(rows, key=lambda row: (self._service[row], row))
        self.start_in_order(order, packing=packing, overtaking=packing)

    def start_in_order(self, order: Iterable[int], *, packing: bool, overtaking: bool) -> None:
        """Start what fits, in pairs where allowed; without overtaking, until one does not."""
        for row in order:
            paired = packing and self._may_share(row) and self._pair(row)
            if not paired and not self._place(row) and not overtaking:
                return

    def _spread(self) -> None:
        """A survivor of a pair has its devices to itself again."""
        shared = Counter(device for on in self._held.values() for device in _devices(on))
        for job in self.started:
            on, whole = self._held[job], self.view.job(self._rows[job]).demand.share == 1.0
            if whole and on.sharing.share < 1.0 and all(shared[d] == 1 for d in _devices(on)):
                self.view.free.give(on)
                self.changes[job] = alone = self._terms(on, 1.0, None)
                self.view.free.take(alone)

    def _place(self, row: int) -> bool:
        job = self.view.job(row)
        on = self._find(job, self.view.free)
        if on is None and not self._held and not self.changes:
            on = fewest_nodes(job, self.view.free)  # as good as it gets: nothing else runs
        if on is None:
            return False
        self.view.free.take(on)
        self._start(row, on)
        return True

    def _pair(self, row: int) -> bool:
        """Put a row beside the first host that passes the binder's rules."""
        new = self._candidate(row)
        if new.gpus > LARGEST or new.score > JUMBO:
            return False
        kinds = self.view.job(row).demand.kinds
        hosts = (host for job, host in self._hosts.items() if not kinds or self._kind(job) in kinds)
        host = first_host(new, hosts)
        if host is None:
            return False
        self._join(row, host, new.mem_gb)
        return True

    def _alone(self, job: JobId) -> bool:
        return self._may_share(self._rows[job]) and self._now(job).sharing.share == 1.0

    def _may_share(self, row: int) -> bool:
        job = self.view.job(row)
        return job.shareable and job.demand.share == 1.0

    def _host(self, job: JobId) -> Candidate:
        row = self._rows[job]
        node = self.view.cluster.index[self._now(job).slices[0].node]
        known = replace(self._candidate(row), gpu_s=self.started[job])
        return replace(known, device_gb=self.view.cluster.nodes[node].device_gb)

    def _kind(self, job: JobId) -> str:
        return self.view.cluster.kind_of(self._now(job))

    def _join(self, row: int, host: Candidate, mem_gb: float) -> None:
        was = self._now(host.id)
        stays, comes = self._terms(was, 0.5, host.mem_gb), self._terms(was, 0.5, mem_gb)
        free = self.view.free
        free.give(was)
        free.take(stays)
        free.take(comes)
        self.changes[host.id] = stays
        self._start(row, comes)
        del self._hosts[host.id]

    def _start(self, row: int, on: Allocation) -> None:
        job = self.view.job(row).id
        self.changes[job] = on
        self.started[job] = float(self._service[row])
        self._rows[job] = row
        if self._alone(job):
            self._hosts[job] = self._host(job)

    def _now(self, job: JobId) -> Allocation:
        on = self.changes.get(job) or self._held[job]
        assert on is not None
        return on

    def _candidate(self, row: int) -> Candidate:
        """A job by what is known about it; one that was not measured passes no rule."""
        job = self.view.job(row)
        if not self._measured[row]:
            return Candidate(job.id, job.demand.gpus, JUMBO + 1, np.inf, 0.0)
        profile = self.view.sharing().profile(job)
        service = float(self._service[row])
        return Candidate(job.id, job.demand.gpus, score(profile), profile.mem_gb, service)

    def _terms(self, on: Allocation, share: float, mem_gb: float | None) -> Allocation:
        index, free = self.view.cluster.index, self.view.free
        slices = tuple(
            free.slice_of(index[part.node], sum(1 << gpu for gpu in part.gpus), share)
            for part in on.slices
        )
        sharing = Sharing(share=share, gpu_mem_gb=mem_gb or None)
        return replace(on, slices=slices, sharing=sharing)


def _devices(on: Allocation) -> list[tuple[str, int]]:
    return [(part.node, gpu) for part in on.slices for gpu in part.gpus]


# ---- which running job may share its devices with a newcomer


LARGEST = 8  # gangs above one node are never packed
SPAN = 2.0  # a newcomer may be at most this much longer than its host


@frozen
class Candidate:
    """A job as the binder sees it: size, sharing score, peak memory, predicted GPU-seconds.

    `device_gb` is the memory of each device that a host is on.
    """

    id: JobId
    gpus: int
    score: int
    mem_gb: float
    gpu_s: float
    device_gb: float = inf


def first_host(new: Candidate, hosts: Iterable[Candidate]) -> Candidate | None:
    """The first host, in order of start, that passes every rule; None if there is none."""
    for host in hosts:
        if (
            new.gpus == host.gpus <= LARGEST
            and new.mem_gb + host.mem_gb < host.device_gb
            and new.score + host.score <= MOST
            and new.gpu_s <= SPAN * host.gpu_s
        ):
            return host
    return None


def score(profile: Profile) -> int:
    """Tiny, medium or jumbo, from what a job does with a device when alone."""
    if profile.bandwidth_use > BUS_BUSY:
        return JUMBO
    return TINY if profile.gpu_use <= GPU_BUSY else MEDIUM


def label(average_speed: float) -> int:
    """The ground truth for the tree: a job's mean normalised speed over measured partners."""
    if average_speed < 0.85:
        return JUMBO
    return MEDIUM if average_speed < 0.95 else TINY
