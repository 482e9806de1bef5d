"""The devices and the jobs on them, during one decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from weft.core.knowledge.knowledge import TunableBatch
from weft.core.knowledge.programs import program_of
from weft.core.model.job import Allocation, Batch, Job, JobId, Sharing
from weft.core.plan.view import View


class Device(NamedTuple):
    """A device by the position of its node in the cluster and its number there."""

    node: int
    gpu: int


class SharedDevices:
    """Residents of shared devices with their batch sizes, as they are being changed.

    `key` names a device in memory. Gangs and jobs that hold part of a device by request live
    elsewhere: their devices are not shared.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.jobs: dict[JobId, Job] = {}
        self.on: dict[Device, list[JobId]] = {}
        self.at: dict[JobId, Device] = {}
        self.batch: dict[JobId, int | None] = {}
        self._held: dict[JobId, Allocation] = {}
        self._claimed: dict[Device, float] = {}
        for job, allocation in zip(view.table.jobs, view.table.allocations, strict=True):
            if allocation is None or not shareable(job):
                continue
            part = allocation.slices[0]
            device = Device(view.cluster.index[part.node], part.gpus[0])
            self._held[job.id] = allocation
            batch = allocation.batch
            size = None if batch is None else batch.per_gpu * batch.accumulate
            self._enter(job, device, size)
        self._reserve()

    def key(self, device: Device) -> str:
        """Return the name of a device in memory."""
        return f"{self.view.cluster.nodes[device.node].id}/{device.gpu}"

    def batch_sizes(self, job: JobId) -> TunableBatch | None:
        """Return the batch sizes that a job may take."""
        return self.view.sharing().tunable(self.jobs[job])

    def size(self, job: JobId) -> int:
        known, batch = self.batch_sizes(job), self.batch[job]
        assert known is not None
        return known.init if batch is None else batch

    def mem_gb(self, job: JobId) -> float:
        known = self.batch_sizes(job)
        if known is not None:
            return known.mem_gb(self.size(job))
        return self.view.sharing().profile(self.jobs[job]).mem_gb

    def device_gb(self, device: Device) -> float:
        return self.view.cluster.nodes[device.node].device_gb

    def used_gb(self, device: Device) -> float:
        """Memory that its residents need."""
        if device not in self._claimed:
            self._claimed[device] = sum(self.mem_gb(job) for job in self.on.get(device, ()))
        return self._claimed[device]

    def utilisation(self, device: Device) -> float:
        """The part of time in which at least one resident keeps the device busy, if by chance."""
        idle = 1.0
        for job in self.on.get(device, ()):
            idle *= 1.0 - min(self.view.sharing().profile(self.jobs[job]).gpu_use, 1.0)
        return 1.0 - idle

    def add(self, job: Job, device: Device) -> None:
        """A job comes to a device, with its initial batch."""
        self._enter(job, device, None)

    def set(self, job: JobId, size: int, device: Device) -> None:
        self.batch[job] = size
        self._claimed.pop(device, None)

    def changes(self) -> Iterator[tuple[JobId, Allocation]]:
        """Yield the allocations of residents that change."""
        for device, jobs in self.on.items():
            share = 1.0 / len(jobs)
            part = self.view.free.slice_of(device.node, 1 << device.gpu, share)
            for job in jobs:
                # One job alone is taken to fit, whatever is said of its memory.
                mem = min(self.mem_gb(job), self.device_gb(device))
                terms = Sharing(share=share, gpu_mem_gb=mem or None)
                wanted = Allocation((part,), terms, self._batch(job))
                if self._held.get(job) != wanted:
                    yield job, wanted

    def _batch(self, job: JobId) -> Batch | None:
        """The batch of a job: as submitted, unless tuned; a real job otherwise chooses itself."""
        size, asked = self.batch[job], self.jobs[job].batch
        if size is None and asked is not None and asked.init <= asked.max_per_gpu:
            size = asked.init
        return None if size is None else Batch(size)

    def _reserve(self) -> None:
        """Keep what leavers left of shared devices from jobs that ask for a part of one."""
        free = self.view.free
        for allocation in self._held.values():
            free.give(allocation)
        for device in self.on:
            free.take(Allocation((free.slice_of(device.node, 1 << device.gpu),)))

    def _enter(self, job: Job, device: Device, size: int | None) -> None:
        self.jobs[job.id] = job
        self.at[job.id] = device
        self.batch[job.id] = size
        self.on.setdefault(device, []).append(job.id)
        self._claimed.pop(device, None)


def shareable(job: Job) -> bool:
    """Return true if a job may live with others: it asks for one whole device and may share it."""
    return job.shareable and job.demand.gpus == 1 and job.demand.share == 1.0


def types_key(jobs: Mapping[JobId, Job], names: list[JobId]) -> str:
    """The kinds of jobs on a device, as the table of past co-locations knows them."""
    return "+".join(sorted(jobs[name].model or program_of(jobs[name]) for name in names))
