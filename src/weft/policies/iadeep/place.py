"""Where an arriving job goes: an idle device, else beside those it disturbs least."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from weft.core.model.job import Allocation, Discipline, Job, JobId
from weft.pieces.place.gangs import acceptable, fewest_nodes
from weft.policies.iadeep.degradation import interference
from weft.policies.iadeep.devices import Device, Devices, of_types, shareable

FULL = 0.99


def place(
    devices: Devices,
    job: Job,
    records: Mapping[str, float],
    closed: Collection[Device],
    most: int,
) -> Allocation | None:
    """Put a job on a device; what a gang gets, which shares with nobody; None if it must wait.

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


def _idle(devices: Devices, job: Job) -> Device | None:
    """A device nobody is on, of the node whose memory is used least."""
    free, cluster = devices.view.free, devices.view.cluster
    kinds = acceptable(job, free)
    nodes = [n for n, node in enumerate(cluster.nodes) if node.kind in kinds and free.on(n)]
    if not nodes:
        return None
    node = min(nodes, key=lambda n: _memory_use(devices, n))
    return Device(node, free.slice(node, 1).gpus[0])


def _memory_use(devices: Devices, node: int) -> float:
    machine = devices.view.cluster.nodes[node]
    used = sum(devices.used_gb(Device(node, gpu)) for gpu in range(machine.gpus))
    return used / (machine.gpus * machine.device_gb)


def _beside(
    devices: Devices,
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
        if devices.utilisation(device) >= FULL or _memory_full(devices, device):
            continue
        offer = (predict(devices, [*jobs], job, kind, records), len(jobs), device)
        if best is None or offer < best:
            best = offer
    return None if best is None else best[2]


def _memory_full(devices: Devices, device: Device) -> bool:
    return devices.used_gb(device) >= FULL * devices.device_gb(device)


def predict(
    devices: Devices, there: list[JobId], new: Job, kind: str, records: Mapping[str, float]
) -> float:
    """Interference of a group: as recorded of the same kinds of jobs, else by the model."""
    everybody = {**{job: devices.jobs[job] for job in there}, new.id: new}
    recorded = records.get(of_types(everybody, list(everybody)))
    if recorded is not None:
        return recorded
    jobs = list(everybody.values())
    speeds = devices.view.sharing().speeds(jobs, kind, Discipline.NONE)
    return interference([1.0 / speed for speed in speeds])
