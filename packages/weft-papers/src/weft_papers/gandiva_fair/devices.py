"""GPUs of a server that jobs are bound to: a sleeping job resumes on those that it sleeps on.

Stride divides the time of each GPU among the jobs on it, so every GPU should carry the same
tickets. New jobs begin where fewest are, and jobs that can leave without a loss move there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.core.asleep.align import can_leave
from weft.core.model.job import Allocation, JobId, Sharing
from weft.core.plan.view import View
from weft.core.state.capacity import Capacity
from weft.core.state.releasing import devices_of
from weft_papers.gandiva_fair.homes import Home, Homes
from weft_papers.gandiva_fair.stride import Device

EPS = 1e-9


@dataclass(slots=True)
class HomeBindings:
    """Devices on which each job that runs or sleeps at home goes on, and tickets by GPU."""

    on: dict[JobId, Allocation]
    load: dict[Device, float]

    def devices(self, job: JobId) -> frozenset[Device]:
        """The GPUs a job goes on with; none if any will do."""
        return frozenset(devices_of(self.on[job])) if job in self.on else frozenset()

    def release(self, job: JobId, tickets: float) -> None:
        """Let a job start over on other GPUs."""
        self._count(self.on.pop(job), -tickets)

    def bind_job(self, job: JobId, on: Allocation, tickets: float) -> None:
        """A job goes on there from now on."""
        self.on[job] = on
        self._count(on, tickets)

    def pick_gpus(self, free: Capacity, node: int, count: int) -> int:
        """Pick that many free GPUs of a node with the fewest tickets, as a bit mask."""
        machine, mask = free.cluster.nodes[node], free.idle_mask(node)
        idle = [gpu for gpu in range(machine.gpus) if mask >> gpu & 1]
        idle.sort(key=lambda gpu: self.load.get((machine.id, gpu), 0.0))
        return sum(1 << gpu for gpu in idle[:count])

    def _count(self, on: Allocation, tickets: float) -> None:
        for device in devices_of(on):
            self.load[device] = self.load.get(device, 0.0) + tickets / on.gpus


def find_bindings(view: View, homes: Homes) -> HomeBindings:
    """Collect the bindings of all jobs that run or sleep at home."""
    bindings, held = HomeBindings({}, {}), view.held()
    for job, home in homes.home.items():
        sleeping = view.asleep.get(job)
        on = held.get(job) or (None if sleeping is None else sleeping.on)
        if on is not None and is_at_home(on, home):
            bindings.bind_job(job, on, homes.tickets[job])
    return bindings


def free_one(
    view: View, homes: Homes, bound: HomeBindings, rested: Mapping[JobId, bool], least_gain: float
) -> JobId | None:
    """Let the sleeper start over that lowers the load of its server's busiest GPU most.

    It loses nothing by it that waiting would not cost; None if no job gains `least_gain`.
    """
    best: tuple[float, JobId] | None = None
    for job, sleeping in view.asleep.items():
        on = bound.on.get(job)
        if on is None or on.gpus != 1 or not rested.get(job) or not can_leave(view, sleeping):
            continue
        (node, gpu), tickets = next(devices_of(on)), homes.tickets[job]
        loads = [bound.load.get((node, i), 0.0) for i in range(homes.nodes[on.slices[0].node].gpus)]
        gain = loads[gpu] - max(loads[gpu] - tickets, min(loads) + tickets)
        if (
            loads[gpu] >= max(loads) - EPS
            and gain > least_gain + EPS
            and (best is None or gain > best[0])
        ):
            best = gain, job
    if best is None:
        return None
    bound.release(best[1], homes.tickets[best[1]])
    return best[1]


def allocate(
    view: View, homes: Homes, bound: HomeBindings, chosen: Sequence[JobId]
) -> dict[JobId, Allocation]:
    """Devices for running jobs: where they were, else any of the server's."""
    held, free, index = view.held(), view.free, view.cluster.index
    for on in held.values():
        free.give(on)
    target: dict[JobId, Allocation] = {}
    for job in chosen:
        before = bound.on.get(job, held.get(job))
        if before is not None and is_at_home(before, homes.home[job]) and free.fits(before):
            free.take(before)
            target[job] = before
    new = [job for job in chosen if job not in target]
    for job in sorted(new, key=lambda job: -homes.tickets[job]):  # so that loads are even
        home = homes.home[job]
        if any(free.on(index[n]) < g for n, g in home.items()):
            continue
        share = view.job(view.table.row(job)).demand.share
        slices = tuple(
            free.slice_of(index[n], bound.pick_gpus(free, index[n], g), share)
            for n, g in home.items()
        )
        on = Allocation(slices, Sharing(share=share))
        if free.fits(on):
            free.take(on)
            target[job] = on
            bound.bind_job(job, on, homes.tickets[job])
    return target


def is_at_home(on: Allocation, home: Home) -> bool:
    """Return true if an allocation has the servers and GPU counts of a home."""
    return {part.node: len(part.gpus) for part in on.slices} == home
