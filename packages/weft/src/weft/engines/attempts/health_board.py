"""Reports of agents about the devices of all nodes: faults by their driver, and slow ranks."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
from typing import Any

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.core.protocols import DeviceHealth
from weft.frozen import frozen
from weft.wire.gpu_health import DeviceRecord

LONGEST = 500  # characters of a fault or a note
MOST_DEVICES = 256  # of a node
FRESH_S = 90.0  # agents write every half a minute; what is older says nothing of now
COUNTERS = ("sm", "held_gb", "power_w", "temp_c", "errors")
ROUNDS = 10  # in a row: five minutes
SLOW = 1.3  # times what the others take
GAIN = 0.1  # part of a step that all would be faster without it: it costs a restart
MOST_JOBS = 10_000  # that are remembered

Device = tuple[NodeId, int]


@frozen
class AgentHealth:
    """One line of an agent; without `alone` it is unknown which device the next job gets.

    Then a node is used or not, and `devices` are numbered as the driver of its GPUs does.
    `witness` is the user who can have written the line, None for the service's own agent. `checked`
    are devices that the agent opened after a failure, each with its fault or none.
    """

    node: NodeId
    alone: bool
    ranks: int
    devices: tuple[DeviceHealth, ...]
    paces: tuple[tuple[int, int, float, float], ...]
    witness: int | None = None
    checked: tuple[tuple[int, str], ...] = ()


def devices_seen(records: Iterable[DeviceRecord]) -> list[DeviceHealth]:
    """Observations of a watch on the engine's own machine, numbered in its order."""
    return [
        DeviceHealth(gpu, record.why_not_to_use, record.notes, counters=record.counters)
        for gpu, record in enumerate(records)
    ]


def read_health(line: dict[str, Any]) -> AgentHealth:
    """The health that an agent wrote; KeyError, TypeError or ValueError for what none writes."""
    counters = {int(gpu): _read_counters(values) for gpu, values in line.get("counters", ())}
    checked = tuple((int(gpu), str(fault)[:LONGEST]) for gpu, fault in line.get("checked", ()))
    named = [*(int(gpu) for gpu, _, _ in line["devices"]), *(gpu for gpu, _ in checked)]
    if not all(0 <= gpu < MOST_DEVICES for gpu in named):
        raise ValueError("no node has such a device")
    return AgentHealth(
        NodeId(str(line["node"])),
        bool(line["alone"]),
        int(line["world"]),
        tuple(
            DeviceHealth(
                int(gpu),
                str(fault)[:LONGEST],
                tuple(str(note)[:LONGEST] for note in notes),
                counters=counters.get(int(gpu), {}),
            )
            for gpu, fault, notes in line["devices"]
        ),
        tuple((int(rank), int(gpu), float(o), float(s)) for rank, gpu, o, s in line["paces"]),
        checked=checked,
    )


def _read_counters(line: Mapping[str, Any]) -> dict[str, float]:
    """Read counters that are known, with values that can be right."""
    values = {name: float(line[name]) for name in COUNTERS if name in line}
    return {name: value for name, value in values.items() if isfinite(value) and value >= 0.0}


@dataclass
class HealthBoard:
    """The last report about each device; it stays when the reporting job has left.

    Counters do not: without a recent report their values are unknown. A user's word that a device
    has a fault is a note, and a fault once another user's agent says so too.
    """

    _heard: dict[NodeId, dict[int, float]] = field(default_factory=dict)
    _devices: dict[NodeId, dict[int, DeviceHealth]] = field(default_factory=dict)
    _whole: set[NodeId] = field(default_factory=set)
    _slow: dict[int | None, SlowDevices] = field(default_factory=dict)  # by witness
    _claims: dict[tuple[NodeId, int], dict[int, str]] = field(default_factory=dict)
    _checks: dict[Device, dict[int | None, str]] = field(default_factory=dict)

    def add_lines(self, key: tuple[JobId, int], lines: Iterable[AgentHealth]) -> None:
        """Note the lines that agents of an attempt wrote."""
        for health in lines:
            if health.devices:
                devices = self._devices.setdefault(health.node, {})
                devices |= {device.gpu: self._weigh(health, device) for device in health.devices}
                heard = self._heard.setdefault(health.node, {})
                heard |= dict.fromkeys((device.gpu for device in health.devices), time.monotonic())
            for gpu, fault in health.checked:
                self._checks.setdefault((health.node, gpu), {})[health.witness] = fault
            if not health.alone:
                self._whole.add(health.node)
            paces = (RankPace(rank, (health.node, gpu), *rest) for rank, gpu, *rest in health.paces)
            slow = self._slow.setdefault(health.witness, SlowDevices())
            slow.note_paces(*key, tuple(paces), health.ranks)

    def _weigh(self, health: AgentHealth, device: DeviceHealth) -> DeviceHealth:
        """Without the fault that a user says a device has: that is a claim until it is confirmed.

        Nor can a user say that a device is well that the service's own agent found a fault of.
        """
        if health.witness is None:
            return device
        self._claims.setdefault((health.node, device.gpu), {})[health.witness] = device.fault
        before = self._devices.get(health.node, {}).get(device.gpu)
        return replace(device, fault=before.fault if before else "")

    def devices(self, node: Node, known: Sequence[DeviceHealth] = ()) -> tuple[DeviceHealth, ...]:
        """Devices of a node with reports; `known` are as another source sees them."""
        by_gpu = {**self._last(node.id), **{device.gpu: device for device in known}}
        own = self._slow.get(None, SlowDevices())
        for (where, gpu), why in own.withdrawn.items():
            if where == node.id:
                by_gpu[gpu] = replace(by_gpu.get(gpu, DeviceHealth(gpu)), withdrawn=why)
        for (where, gpu), why in own.faults.items():
            if where == node.id:
                by_gpu[gpu] = _add_fault(by_gpu.get(gpu, DeviceHealth(gpu)), why)
        for gpu in range(node.gpus):
            if fault := self._checks.get((node.id, gpu), {}).get(None):
                by_gpu[gpu] = _add_fault(by_gpu.get(gpu, DeviceHealth(gpu)), fault)
            if claims := self._claimed(node.id, gpu):
                by_gpu[gpu] = _judge(by_gpu.get(gpu, DeviceHealth(gpu)), claims)
        if node.id in self._whole:
            by_gpu = dict(enumerate(_joined(node, by_gpu)))
        return tuple(by_gpu[gpu] for gpu in sorted(by_gpu) if gpu < node.gpus)

    def checked(self, node: NodeId, gpus: Collection[int]) -> dict[int, str]:
        """The faults found when these GPUs were opened, empty for those that work."""
        return {
            gpu: "; ".join(sorted({*self._checks[node, gpu].values()} - {""}))
            for gpu in gpus
            if (node, gpu) in self._checks
        }

    def forget_checks(self, node: NodeId, gpus: Collection[int]) -> None:
        """These GPUs are about to be opened again."""
        for gpu in gpus:
            self._checks.pop((node, gpu), None)

    def _claimed(self, node: NodeId, gpu: int) -> dict[int, str]:
        """The faults that users say a device has, by user."""
        claims = self._claims.get((node, gpu), {})
        checks = self._checks.get((node, gpu), {})
        both = [*claims.items(), *checks.items()]
        faults = {witness: fault for witness, fault in both if fault and witness is not None}
        for witness, slow in self._slow.items():
            if witness is not None and (node, gpu) in slow.faults:
                faults.setdefault(witness, slow.faults[node, gpu])
        return faults

    def _last(self, node: NodeId) -> dict[int, DeviceHealth]:
        heard, now = self._heard.get(node, {}), time.monotonic()
        return {
            gpu: device if now - heard[gpu] < FRESH_S else replace(device, counters={})
            for gpu, device in self._devices.get(node, {}).items()
        }


def _add_fault(device: DeviceHealth, why: str) -> DeviceHealth:
    return replace(device, fault="; ".join(filter(None, (device.fault, why))))


def _judge(device: DeviceHealth, claims: Mapping[int, str]) -> DeviceHealth:
    """The verdict on users' claims about a device: two of them must say that it has a fault."""
    why = "; ".join(sorted({*claims.values()}))
    if len(claims) > 1:
        return _add_fault(device, why)
    note = f"{why} (says an agent of user {min(claims)} alone)"
    return replace(device, notes=(*device.notes, note[:LONGEST]))


def _joined(node: Node, by_gpu: dict[int, DeviceHealth]) -> Iterable[DeviceHealth]:
    """All devices of a node alike: a fault of one is a reason not to use any."""
    faults = [
        f"GPU {gpu}: {device.fault}" for gpu, device in sorted(by_gpu.items()) if device.fault
    ]
    withdrawn = [
        f"GPU {gpu}: {health.withdrawn}" for gpu, health in by_gpu.items() if health.withdrawn
    ]
    for gpu in range(node.gpus):
        device = by_gpu.get(gpu, DeviceHealth(gpu))
        yield replace(device, fault="; ".join(faults), withdrawn="; ".join(withdrawn))


# ---- Which rank of a gang is always the last, and whether its device or its program is to blame.
# Pure
#
# A round is over when every rank has reported what its steps took by themselves. A rank that was
# last by much in each of many rounds is slow, and so is its device, as far as one can see. If the
# same rank of the same job is slow on another device too, it is the program that gives this rank
# more to do.


@frozen
class RankPace:
    """The time of one rank's step: alone (`own_s`), and with waiting for the others."""

    rank: int
    device: Device
    own_s: float
    step_s: float


@frozen
class SlowRank:
    """The one that is always last; it takes at least `times` what the others do."""

    rank: int
    device: Device
    times: float


@dataclass(slots=True)
class GangPaces:
    """Of one attempt: `take` says which rank is slow when that is clear."""

    _told: dict[int, RankPace] = field(default_factory=dict)
    _last: SlowRank | None = None
    _rounds: int = 0

    def add_paces(self, paces: Iterable[RankPace], ranks: int) -> SlowRank | None:
        """The slow rank that reports of some `ranks` show; None where nothing follows yet."""
        self._told |= {pace.rank: pace for pace in paces}
        if ranks < 2 or len(self._told) < ranks:
            return None
        last, self._told = find_last(self._told.values()), {}
        before = self._last
        if last is None or before is None or last.rank != before.rank:
            self._last, self._rounds = last, int(last is not None)
        else:
            times = min(last.times, before.times)
            self._last, self._rounds = SlowRank(last.rank, last.device, times), self._rounds + 1
        return self._last if self._rounds >= ROUNDS else None


def find_last(paces: Iterable[RankPace]) -> SlowRank | None:
    """The rank that the others wait for; None where it is not late by much."""
    *others, last = sorted(paces, key=lambda pace: pace.own_s)
    usual = median(pace.own_s for pace in others)
    late = last.own_s - usual
    if usual <= 0.0 or last.own_s < SLOW * usual or late < GAIN * last.step_s:
        return None
    return SlowRank(last.rank, last.device, last.own_s / usual)


@dataclass(slots=True)
class SlowDevices:
    """Devices whose ranks are slow, with why; of those `withdrawn` the program was to blame."""

    faults: dict[Device, str] = field(default_factory=dict)
    withdrawn: dict[Device, str] = field(default_factory=dict)
    _gangs: dict[JobId, tuple[int, GangPaces]] = field(default_factory=dict)
    _found: dict[JobId, tuple[SlowRank, str]] = field(default_factory=dict)
    _uneven: dict[JobId, None] = field(default_factory=dict)

    def note_paces(self, job: JobId, attempt: int, paces: tuple[RankPace, ...], ranks: int) -> None:
        """Note the paces that some ranks of an attempt report."""
        if job in self._uneven or not paces:
            return
        if job not in self._gangs or self._gangs[job][0] != attempt:
            self._gangs[job] = attempt, GangPaces()
            for jobs in (self._gangs, self._found, self._uneven):
                if len(jobs) > MOST_JOBS:
                    del jobs[next(iter(jobs))]  # the oldest
            for pace in paces:  # the job that uses it now reports its state again
                self.faults.pop(pace.device, None)
        slow = self._gangs[job][1].add_paces(paces, ranks)
        if slow is None:
            return
        before = self._found.get(job)
        if before is not None and before[0].device == slow.device:
            self.faults[slow.device] = before[1]
            return
        if before is not None and before[0].rank == slow.rank:
            self._uneven[job] = None
            self.faults.pop(before[0].device, None)
            self.withdrawn[before[0].device] = before[1]
            return
        why = (
            f"slow: rank {slow.rank} of {job} took {slow.times:.1f} times as long as the others "
            "before it met them, in each half a minute of five"
        )
        self._found[job] = slow, why
        self.faults[slow.device] = why
        self.withdrawn.pop(slow.device, None)
