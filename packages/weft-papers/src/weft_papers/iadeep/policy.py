"""IADeep: co-locate jobs where they interfere least, then tune batch sizes on the device.

Paper       Cai et al., "Interference-aware Multiplexing for Deep Learning in GPU Clusters: A
            Middleware Approach", SC 2023.
Objective   completion time and makespan of single-GPU jobs that share devices.
Needs       what jobs do alone, their memory by batch size, and their measured pace side by side.
            An unmodified job has its GPU alone until its memory and its use of the GPU were
            measured; its batch size is never tuned.
Controls    which jobs run, where, which share devices, and batch sizes.
Cost        O(devices) for each waiting job; a Gaussian process over at most 4,096 points for
            every measurement of a device that is tuned.
Deviations  the search is the usual one with real measurements: a Gaussian process with a squared
            exponential kernel over the joint grid of all tunable jobs of the device, lower
            confidence bound, memory-feasible points only, and the best measured point at
            the end; the authors' code feeds a linear model its own bounds and tunes the newcomer
            alone. Degradation is in its progress form. Where no
            past co-location of the same models is on record, the scheduler's interference
            model predicts instead of a random forest. Idle devices come first in the whole
            cluster, then the least interference anywhere; the authors choose a node first. Jobs
            about to end are tuned like others. A job left alone goes back to its own batch. Gangs
            and parts of devices are placed as they ask and do not share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from weft.core.errors import InvalidConfig
from weft.core.knowledge.knowledge import TunableBatch
from weft.core.model.job import Allocation, Discipline, Job, JobId
from weft.core.plan import taxonomy as tax
from weft.core.plan.about import About, Controls
from weft.core.plan.plan import Plan
from weft.core.plan.policy import recall
from weft.core.plan.view import View
from weft.frozen import frozen
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.pieces.share.memory_order import order_memory
from weft_papers.iadeep.devices import Device, SharedDevices, shareable, types_key
from weft_papers.iadeep.tuning import DeviceTuner, TuningSession, interference

EPS = 1e-6
ABOUT = About(
    "iadeep",
    "Cai et al. 2023",
    controls=Controls.SHARE | Controls.BATCH,
    starves="a stream of jobs with less memory",
    taxonomy=tax.classify(
        tax.Objective.COMPLETION_TIME | tax.Objective.MAKESPAN,
        tax.NeededKnowledge.PROFILES,
        tax.Preemption.NEVER,
        tax.Elasticity.BATCH,
        tax.DeviceSharing.SIDE_BY_SIDE,
        tax.TopologyKnowledge.ANY_NODES,
    ),
)


@frozen
class IADeepMemory:
    """Devices being tuned, residents each was last tuned for, and past co-locations.

    `records` has the interference measured of kinds of jobs that were on a device together.
    """

    sessions: dict[str, TuningSession] = field(default_factory=dict)
    tuned: dict[str, tuple[JobId, ...]] = field(default_factory=dict)
    records: dict[str, float] = field(default_factory=dict)


@frozen
class IADeep:
    """Share GPUs, and choose batch sizes with which jobs slow each other least.

    At most `residents` jobs share a device. With `tune` every new group is measured at up to
    `probes` settings of `probe_s` seconds each, fewer if `patience` of them bring no improvement;
    without it, the group is measured once.
    """

    tune: bool = True
    probes: int = 10
    patience: int = 4
    probe_s: float = 5.0
    residents: int = 4

    about = ABOUT

    def __post_init__(self) -> None:
        if min(self.probes, self.patience, self.residents) < 1 or self.probe_s <= 0.0:
            raise InvalidConfig(
                f"iadeep: probes {self.probes}, patience {self.patience}, residents "
                f"{self.residents} and probe_s {self.probe_s:g} must be positive",
                hint="for example iadeep:probes=10,probe_s=5",
            )

    def degrade(self, devices: SharedDevices, job: JobId, stretch: float) -> float:  # noqa: ARG002
        """A job's degradation: in its progress form what was measured is all there is to it."""
        return stretch

    def decide(self, view: View) -> Plan:
        """Take in what was measured, place newcomers, and see to groups that changed."""
        kept = recall(view, IADeepMemory)
        devices = SharedDevices(view)
        book = _TuningState(self, devices, kept)
        book.measure()
        changes: dict[JobId, Allocation | None] = {}
        closed = {d for d in devices.on if self.tune and devices.key(d) in book.sessions}
        for row, job in enumerate(view.table.jobs):
            if view.allocation(row) is None:
                on = place(devices, job, book.records, closed, self.residents)
                if on is not None and not shareable(job):
                    changes[job.id] = on
                elif on is not None and self.tune and len(devices.on[devices.at[job.id]]) > 1:
                    closed.add(devices.at[job.id])  # it is about to be tuned
        book.begin()
        changes.update(devices.changes())
        wakes = [session.until for session in book.sessions.values()]
        memory = IADeepMemory(book.sessions, book.tuned, book.records)
        reasons = book.explain()
        return Plan(
            changes,
            wake_at=min(wakes, default=None),
            memory=memory,
            reasons=reasons,
            memory_order=order_memory(view, changes),
        )


class _TuningState:
    """Sessions, and what is on record, during one decision."""

    def __init__(self, policy: IADeep, devices: SharedDevices, kept: IADeepMemory) -> None:
        self._policy = policy
        self._devices = devices
        self._tuner = DeviceTuner(
            policy.probes if policy.tune else 1, policy.patience, policy.probe_s
        )
        now = {devices.key(d): tuple(sorted(jobs)) for d, jobs in devices.on.items()}
        self.records = dict(kept.records)
        self.tuned = {key: jobs for key, jobs in kept.tuned.items() if now.get(key) == jobs}
        self.sessions = {key: s for key, s in kept.sessions.items() if key in self.tuned}
        self._over: list[TuningSession] = []

    def measure(self) -> None:
        """Take up results that are due, and go on to the next measurement or to the best."""
        for device in list(self._devices.on):
            session = self.sessions.get(self._devices.key(device))
            if session is not None and self._devices.view.now >= session.until - EPS:
                self._onward(device, session)

    def begin(self) -> None:
        """Start on every new group; a job that is alone has its own batch."""
        for device, jobs in self._devices.on.items():
            key = self._devices.key(device)
            if self.tuned.get(key) == tuple(sorted(jobs)):
                continue
            self.sessions.pop(key, None)
            self.tuned[key] = tuple(sorted(jobs))
            if len(jobs) > 1:
                until = self._devices.view.now + self._policy.probe_s
                self.sessions[key] = self._session(device, until)
                continue
            for job in self._tunable(device):
                known = self._devices.batch_sizes(job)
                assert known is not None
                self._devices.set(job, known.init, device)

    def _tunable(self, device: Device) -> list[JobId]:
        """Residents of which it is known what another batch needs."""
        return [
            job for job in self._devices.on[device] if self._devices.batch_sizes(job) is not None
        ]

    def _session(self, device: Device, until: float) -> TuningSession:
        """The first measurement of a group, as it is."""
        jobs = self._tunable(device)
        return TuningSession(tuple(jobs), tuple(self._devices.size(job) for job in jobs), until)

    def _onward(self, device: Device, session: TuningSession) -> None:
        key, now = self._devices.key(device), self._devices.view.now
        stretches = self._stretches(device)
        if stretches is None:  # a job has not measured yet
            self.sessions[key] = TuningSession(
                session.jobs,
                session.asked,
                now + self._policy.probe_s,
                session.points,
                session.values,
            )
            return
        if not session.values:
            session = self._session(device, session.until)  # real jobs had told nothing before
            kinds = types_key(self._devices.jobs, self._devices.on[device])
            self.records[kinds] = interference(list(stretches.values()))
        updated = session.with_result(self._objective(stretches))
        onward = (
            self._tuner.next_session(updated, *self._limits(device, updated), now)
            if updated.jobs
            else None
        )
        if onward is None:
            del self.sessions[key]
            self._over += [updated] if updated.jobs and self._policy.tune else []
            self._set(device, updated.jobs, updated.best)
        else:
            self.sessions[key] = onward
            self._set(device, onward.jobs, onward.asked)

    def explain(self) -> dict[JobId, str]:
        """Say how far the search for batch sizes has come, for each job in one."""
        most = self._policy.probes
        over = {
            job: session.summarise(at)
            for session in self._over
            for at, job in enumerate(session.jobs)
        }
        return over | {
            job: session.describe(at, most)
            for session in self.sessions.values()
            if self._policy.tune
            for at, job in enumerate(session.jobs)
        }

    def _set(self, device: Device, jobs: tuple[JobId, ...], sizes: tuple[int, ...]) -> None:
        for job, size in zip(jobs, sizes, strict=True):
            self._devices.set(job, size, device)

    def _limits(
        self, device: Device, session: TuningSession
    ) -> tuple[Mapping[JobId, TunableBatch], Mapping[JobId, int | None], float]:
        devices = self._devices
        tunables = {job: devices.batch_sizes(job) for job in session.jobs}
        known = {job: tunable for job, tunable in tunables.items() if tunable is not None}
        ranges = {job: devices.jobs[job].batch for job in session.jobs}
        most = {job: None if r is None else r.max for job, r in ranges.items()}
        others = sum(devices.mem_gb(job) for job in devices.on[device] if job not in known)
        return known, most, devices.device_gb(device) - others

    def _stretches(self, device: Device) -> dict[JobId, float] | None:
        """Progress alone over progress now, of every resident; None before all have measured."""
        sharing = self._devices.view.sharing()
        paces = {job: sharing.pace(self._devices.jobs[job]) for job in self._devices.on[device]}
        if not all(paces.values()):
            return None
        return {job: 1.0 / pace for job, pace in paces.items() if pace}

    def _objective(self, stretches: Mapping[JobId, float]) -> float:
        return sum(self._policy.degrade(self._devices, *seen) for seen in stretches.items())


# ---- Where an arriving job goes: an idle device, else beside those it disturbs least


FULL = 0.99


def place(
    devices: SharedDevices,
    job: Job,
    records: Mapping[str, float],
    closed: Collection[Device],
    most: int,
) -> Allocation | None:
    """Put a job on a device; what a gang gets, which does not share; None if it must wait.

    `closed` are devices being tuned, `most` the residents of a device.
    """
    free = devices.view.free
    if not shareable(job):
        on = fewest_nodes(job, free)
        if on is not None:
            free.take(on)
        return on
    device = _idle(devices, job)
    if device is not None:
        part = free.slice_of(device.node, 1 << device.gpu)
        free.take(Allocation((part,)))
    else:
        device = _beside(devices, job, records, closed, most)
    if device is None:
        return None
    devices.add(job, device)
    part = free.slice_of(device.node, 1 << device.gpu)
    return Allocation((part,))


def _idle(devices: SharedDevices, job: Job) -> Device | None:
    """An idle device, of the node whose memory is used least."""
    free, cluster = devices.view.free, devices.view.cluster
    kinds = acceptable(job, free)
    nodes = [n for n, node in enumerate(cluster.nodes) if node.kind in kinds and free.on(n)]
    if not nodes:
        return None
    node = min(nodes, key=lambda n: _memory_use(devices, n))
    return Device(node, free.slice(node, 1).gpus[0])


def _memory_use(devices: SharedDevices, node: int) -> float:
    machine = devices.view.cluster.nodes[node]
    used = sum(devices.used_gb(Device(node, gpu)) for gpu in range(machine.gpus))
    return used / (machine.gpus * machine.device_gb)


def _beside(
    devices: SharedDevices,
    job: Job,
    records: Mapping[str, float],
    closed: Collection[Device],
    most: int,
) -> Device | None:
    """The device where the least interference is predicted, if any has room."""
    kinds = acceptable(job, devices.view.free)
    sharing = devices.view.sharing()
    known = sharing.tunable(job)
    need = sharing.profile(job).mem_gb if known is None else known.mem_gb(known.init)
    best: tuple[float, int, Device] | None = None
    for device, jobs in devices.on.items():
        kind = devices.view.cluster.nodes[device.node].kind
        if device in closed or len(jobs) >= most or kind not in kinds:
            continue
        if devices.used_gb(device) + need > devices.device_gb(device):
            continue
        full_gb = FULL * devices.device_gb(device)
        if devices.utilisation(device) >= FULL or devices.used_gb(device) >= full_gb:
            continue
        offer = (predict(devices, [*jobs], job, kind, records), len(jobs), device)
        if best is None or offer < best:
            best = offer
    return None if best is None else best[2]


def predict(
    devices: SharedDevices, there: list[JobId], new: Job, kind: str, records: Mapping[str, float]
) -> float:
    """Interference of a group: as recorded of the same kinds of jobs, else by the model."""
    everybody = {**{job: devices.jobs[job] for job in there}, new.id: new}
    recorded = records.get(types_key(everybody, list(everybody)))
    if recorded is not None:
        return recorded
    jobs = list(everybody.values())
    speeds = devices.view.sharing().speeds(jobs, kind, Discipline.NONE)
    return interference([1.0 / speed for speed in speeds])
