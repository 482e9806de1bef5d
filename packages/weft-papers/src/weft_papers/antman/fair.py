"""Guaranteed jobs on devices of their own, opportunistic ones in what these leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from weft.core.model import job as model
from weft.core.model.job import JobId
from weft.core.plan.plan import Plan
from weft.core.plan.view import View
from weft.core.state.table import Bools
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.plural import say_gpus

Device = tuple[int, int]


@frozen
class StartTerms:
    """Options of the policy: which jobs may start on which devices, and how often dials are set."""

    quota: Mapping[str, float]
    promote: bool
    epoch: float
    busy: float
    used_gb: float
    margin_gb: float


class Round:
    """One decision."""

    def __init__(self, view: View, loose: Bools, terms: StartTerms) -> None:
        self._view, self._terms = view, terms
        self._loose = loose
        self._sharing = view.sharing()
        self._held: dict[model.JobId, model.Allocation] = view.held()
        self._jobs = {job.id: job for job in view.table.jobs}
        self.changes: dict[model.JobId, model.Allocation | None] = {}
        self._on: dict[Device, list[model.JobId]] = {}
        for job, on in self._held.items():
            self._settle(job, on)

    def plan(self) -> Plan:
        """Start guaranteed jobs in turn, slip in opportunistic ones, turn the dials."""
        self._start_firm()
        self._start_loose()
        dials = self._dials()
        due = [dial.since + self._terms.epoch for dial in dials.values() if dial.above]
        wake = min((at for at in due if at > self._view.now), default=None)
        return Plan(self.changes, self._hopeless(), wake_at=wake, memory=AntmanMemory(dials=dials))

    def _hopeless(self) -> dict[model.JobId, str]:
        """Jobs beyond their tenant's quota that rule out the gaps of others as well."""
        return {
            job.id: f"asks for {say_gpus(job.demand.gpus)}, more than the quota of {job.tenant!r}, "
            "and may not share devices with others"
            for row, job in enumerate(self._view.table.jobs)
            if not job.shareable and self._over(job, {}) and self._view.allocation(row) is None
        }

    # ---- guaranteed jobs

    def _start_firm(self) -> None:
        """In order of submission; devices of kinds that a waiting gang can use are kept for it."""
        kept: set[str] = set()
        spent = self._spent()
        for row in np.flatnonzero(~self._loose).tolist():
            job = self._view.job(row)
            on = self._held.get(job.id)
            if on is not None and (
                on.sharing.tier is model.Tier.GUARANTEED or not self._terms.promote
            ):
                continue
            if self._over(job, spent):
                continue
            kinds = [k for k in acceptable(job, self._view.free) if k not in kept]
            to = self._place(job, kinds) if kinds else None
            if to is not None:
                self._hold(job, to)
                spent[job.tenant] = spent.get(job.tenant, 0.0) + job.demand.gpus
            elif on is None:
                kept.update(acceptable(job, self._view.free))
            if len(kept) == len(self._view.cluster.kinds):
                return

    def _spent(self) -> dict[str, float]:
        """GPUs that tenants hold of their quota: opportunistic ones do not count."""
        spent: dict[str, float] = {}
        for job, on in self._held.items():
            if on.sharing.tier is model.Tier.GUARANTEED:
                tenant = self._jobs[job].tenant if job in self._jobs else ""
                spent[tenant] = spent.get(tenant, 0.0) + on.gpus
        return spent

    def _over(self, job: model.Job, spent: Mapping[str, float]) -> bool:
        quota = self._terms.quota.get(job.tenant)
        return quota is not None and spent.get(job.tenant, 0.0) + job.demand.gpus > quota + 1e-9

    def _place(self, job: model.Job, kinds: Sequence[str]) -> model.Allocation | None:
        """On few nodes, and there on the devices with least on them."""
        wanted = replace(job, demand=replace(job.demand, kinds=tuple(kinds)))
        on = fewest_nodes(wanted, self._view.free)
        if on is None:
            return None
        profile = self._sharing.profile(job)
        cap = min(profile.mem_gb, self._device_gb(on)) or None
        sharing = replace(on.sharing, gpu_mem_gb=cap, discipline=model.Discipline.PACED)
        if on.sharing.share < 1.0:
            return replace(on, sharing=replace(sharing, gpu_mem_gb=None))
        slices = tuple(self._quietest(part) for part in on.slices)
        if not job.shareable and any(self._taken(part) for part in slices):
            return None
        return model.Allocation(slices, sharing)

    def _taken(self, part: model.Slice) -> bool:
        """Return true if an opportunistic job is on one of the devices."""
        node = self._view.cluster.index[part.node]
        return any(self._on.get((node, gpu)) for gpu in part.gpus)

    def _quietest(self, part: model.Slice) -> model.Slice:
        node = self._view.cluster.index[part.node]
        free = self._view.free.slice(node, self._view.free.on(node)).gpus
        best = sorted(free, key=lambda gpu: (len(self._on.get((node, gpu), ())), gpu))
        mask = sum(1 << gpu for gpu in best[: len(part.gpus)])
        return self._view.free.slice_of(node, mask)

    # ---- opportunistic jobs

    def _start_loose(self) -> None:
        spent = self._spent()
        for row in np.flatnonzero(self._view.waiting()).tolist():
            job = self._view.job(row)
            loose = self._loose[row] or (job.shareable and self._over(job, spent))
            if job.id in self._held or not loose:
                continue
            devices = self._least_used(job)
            if devices is not None:
                sharing = model.Sharing(
                    tier=model.Tier.OPPORTUNISTIC,
                    gpu_mem_gb=self._cap(job, devices),
                    discipline=model.Discipline.PACED,
                )
                self._hold(job, opportunistic(self._view, devices, sharing))

    def _least_used(self, job: model.Job) -> list[Device] | None:
        """Devices below the limits that no other opportunistic job is on, least used first."""
        for kind in acceptable(job, self._view.free):
            devices = []
            for node, machine in enumerate(self._view.cluster.nodes):
                if machine.kind != kind:
                    continue
                for gpu in range(machine.gpus):
                    use = self._open_to(node, gpu)
                    if use is not None:
                        devices.append((use, node, gpu))
            if len(devices) >= job.demand.gpus:
                return [(node, gpu) for _, node, gpu in sorted(devices)[: job.demand.gpus]]
        return None

    def _open_to(self, node: int, gpu: int) -> float | None:
        """Return how busy a device is, None if no opportunistic job may start there."""
        here = [self._jobs[job] for job in self._on.get((node, gpu), ()) if job in self._jobs]
        if any(self._tier(job) is model.Tier.OPPORTUNISTIC or not job.shareable for job in here):
            return None
        profiles = [self._sharing.profile(job) for job in here]
        use = sum(min(profile.busy_s / profile.step_s, 1.0) for profile in profiles)
        used_gb = sum(profile.mem_gb for profile in profiles)
        return use if use < self._terms.busy and used_gb < self._terms.used_gb else None

    def _cap(self, job: model.Job, devices: Sequence[Device]) -> float | None:
        """GB an opportunistic job may have on each device: what is left, at most what it uses."""
        wanted = self._sharing.profile(job).mem_gb
        if not wanted:
            return None
        least = wanted
        for node, gpu in devices:
            others = sum(
                self._held[other].sharing.gpu_mem_gb or 0.0
                for other in self._on.get((node, gpu), ())
                if other != job.id
            )
            room = self._view.cluster.nodes[node].device_gb - others
            least = min(least, room - self._terms.margin_gb if others else room)
        return max(least, 0.0)

    # ---- dials

    def _dials(self) -> dict[model.JobId, Dial]:
        memory = self._view.memory
        known = memory.dials if isinstance(memory, AntmanMemory) else {}
        dials: dict[model.JobId, Dial] = {}
        for job, on in list(self._held.items()):
            if on.sharing.tier is not model.Tier.OPPORTUNISTIC or job not in self._jobs:
                continue
            devices = self._devices(on)
            above = self._above(devices)
            dial = dial_under(known.get(job), above, self._view.now)
            if above and self._view.now >= dial.since + self._terms.epoch:
                dial = turn_dial(dial, self._slowdown(above), self._view.now)
            dials[job] = dial
            cap = self._cap(self._jobs[job], devices)
            to = replace(on, sharing=replace(on.sharing, share=dial.share, gpu_mem_gb=cap))
            if to != on:
                self._held[job] = to
                self.changes[job] = to
        return dials

    def _above(self, devices: Sequence[Device]) -> tuple[model.JobId, ...]:
        job_ids = {
            job
            for device in devices
            for job in self._on.get(device, ())
            if self._held[job].sharing.tier is model.Tier.GUARANTEED
        }
        return tuple(sorted(job_ids))

    def _slowdown(self, above: Sequence[model.JobId]) -> float:
        """Return how many times slower than alone the slowest of these measured itself, or 1."""
        paces = [self._sharing.pace(self._jobs[job]) for job in above if job in self._jobs]
        return 1.0 / max(min((p for p in paces if p is not None), default=1.0), 1e-6)

    # ---- inside

    def _hold(self, job: model.Job, to: model.Allocation) -> None:
        was = self._held.pop(job.id, None)
        if was is not None:
            self._view.free.give(was)
            for device in self._devices(was):
                self._on[device].remove(job.id)
        if to.sharing.tier is model.Tier.GUARANTEED:
            self._view.free.take(replace(to, sharing=replace(to.sharing, gpu_mem_gb=None)))
        self._held[job.id] = self.changes[job.id] = to
        self._settle(job.id, to)

    def _settle(self, job: model.JobId, on: model.Allocation) -> None:
        for device in self._devices(on):
            self._on.setdefault(device, []).append(job)

    def _tier(self, job: model.Job) -> model.Tier:
        return self._held[job.id].sharing.tier

    def _devices(self, on: model.Allocation) -> list[Device]:
        index = self._view.cluster.index
        return [(index[part.node], gpu) for part in on.slices for gpu in part.gpus]

    def _device_gb(self, on: model.Allocation) -> float:
        nodes: Mapping[model.NodeId, int] = self._view.cluster.index
        return min(self._view.cluster.nodes[nodes[part.node]].device_gb for part in on.slices)


def opportunistic(
    view: View, devices: Sequence[Device], sharing: model.Sharing
) -> model.Allocation:
    """An allocation on these devices that takes nothing of the host."""
    parts: dict[model.NodeId, list[int]] = {}
    for node, gpu in sorted(devices):
        parts.setdefault(view.cluster.nodes[node].id, []).append(gpu)
    return model.Allocation(
        tuple(model.Slice(n, tuple(gpus)) for n, gpus in parts.items()), sharing
    )


# ---- The dial of an opportunistic job: up in small steps, down at once (section 4 of the
# paper)
#
# The paper's local coordinator was not published. This one keeps the guaranteed jobs above
# within `HIGH` of the pace they have alone: up by `STEP` while they are within `LOW`, half of
# the share when they are beyond `HIGH`, still in between.


@frozen
class Dial:
    """The share of one opportunistic job and the limits between which it is being set.

    `above` are the guaranteed jobs it lives under; `most` the share that was found too much for
    them, 1 or more while none was; `since` when the share was last changed.
    """

    share: float = 1.0
    most: float = 2.0
    since: float = 0.0
    above: tuple[JobId, ...] = ()


@frozen
class AntmanMemory:
    """The dials of opportunistic jobs."""

    dials: Mapping[JobId, Dial] = field(default_factory=dict)


STEP = 0.05
LOW, HIGH = 1.02, 1.05
LEAST = 0.01  # below this a job is suspended


def next_share(share: float, slowdown: float) -> float:
    """The share of the next epoch, given how much slower the guaranteed jobs got."""
    if slowdown > HIGH:
        return share / 2.0 if share / 2.0 >= LEAST else 0.0
    return min(share + STEP, 1.0) if slowdown <= LOW else share


def turn_dial(dial: Dial, slowdown: float, now: float) -> Dial:
    """The dial of the next epoch.

    It stays below a share that was found too much, as long as the same jobs are above: a loop
    that forgot would disturb them again and again.
    """
    share = next_share(dial.share, slowdown)
    if share > dial.share and share >= dial.most - 1e-9:
        return dial
    if share == dial.share:
        return dial
    most = dial.share if share < dial.share else dial.most
    return replace(dial, share=share, most=most, since=now)


def dial_under(dial: Dial | None, above: tuple[JobId, ...], now: float) -> Dial:
    """The dial of a job under these guaranteed jobs: small where they are new, open with none."""
    if dial is not None and dial.above == above:
        return dial
    share = STEP if above else 1.0
    if dial is not None and above and set(above) <= set(dial.above):
        share = dial.share  # some of those above left: what the others bore they still bear
    return Dial(share, 2.0, now, above)
