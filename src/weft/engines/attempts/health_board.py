"""What agents tell of the devices of all nodes, joined: faults by their driver, and slow ranks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.core.protocols import DeviceHealth
from weft.engines.attempts.slow_ranks import Pace, SlowDevices
from weft.frozen import frozen
from weft.wire.gpus.health import DeviceRecord

LONGEST = 500  # characters of a fault or a note
FRESH_S = 90.0  # agents write every half a minute; what is older says nothing of now
COUNTERS = ("sm", "held_gb", "power_w", "temp_c", "errors")


@frozen
class AgentHealth:
    """One line of an agent; without `alone` it is unknown which device the next job gets.

    Then a node is used or not, and `devices` are numbered as the driver of its GPUs does.
    """

    node: NodeId
    alone: bool
    ranks: int
    devices: tuple[DeviceHealth, ...]
    paces: tuple[tuple[int, int, float, float], ...]


def devices_seen(records: Iterable[DeviceRecord]) -> list[DeviceHealth]:
    """What a watch on the engine's own machine has seen, numbered in its order."""
    return [
        DeviceHealth(gpu, record.fault, record.notes, counters=record.counters)
        for gpu, record in enumerate(records)
    ]


def read_health(line: dict[str, Any]) -> AgentHealth:
    """What an agent wrote; KeyError, TypeError or ValueError for what none writes."""
    counters = {int(gpu): _read_counters(values) for gpu, values in line.get("counters", ())}
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
    )


def _read_counters(line: Mapping[str, Any]) -> dict[str, float]:
    """Those that are known, with values that can be right."""
    values = {name: float(line[name]) for name in COUNTERS if name in line}
    return {name: value for name, value in values.items() if isfinite(value) and value >= 0.0}


@dataclass
class HealthBoard:
    """The last report about each device; it stays when the reporting job has left.

    Counters do not: without a recent report their values are unknown.
    """

    _heard: dict[NodeId, dict[int, float]] = field(default_factory=dict)
    _told: dict[NodeId, dict[int, DeviceHealth]] = field(default_factory=dict)
    _whole: set[NodeId] = field(default_factory=set)
    _slow: SlowDevices = field(default_factory=SlowDevices)

    def take(self, key: tuple[JobId, int], lines: Iterable[AgentHealth]) -> None:
        """What agents of an attempt told."""
        for health in lines:
            if health.devices:
                devices = self._told.setdefault(health.node, {})
                devices |= {device.gpu: device for device in health.devices}
                heard = self._heard.setdefault(health.node, {})
                heard |= dict.fromkeys((device.gpu for device in health.devices), time.monotonic())
            if not health.alone:
                self._whole.add(health.node)
            paces = (Pace(rank, (health.node, gpu), *rest) for rank, gpu, *rest in health.paces)
            self._slow.take(*key, tuple(paces), health.ranks)

    def devices(self, node: Node, known: Sequence[DeviceHealth] = ()) -> tuple[DeviceHealth, ...]:
        """Devices of a node with reports; `known` are as another source sees them."""
        known_now = {**self._last(node.id), **{device.gpu: device for device in known}}
        for (where, gpu), why in self._slow.withdrawn.items():
            if where == node.id:
                known_now[gpu] = replace(known_now.get(gpu, DeviceHealth(gpu)), withdrawn=why)
        for (where, gpu), why in self._slow.faults.items():
            if where == node.id:
                device = known_now.get(gpu, DeviceHealth(gpu))
                known_now[gpu] = replace(device, fault="; ".join(filter(None, (device.fault, why))))
        if node.id in self._whole:
            known_now = dict(enumerate(_joined(node, known_now)))
        return tuple(known_now[gpu] for gpu in sorted(known_now) if gpu < node.gpus)

    def _last(self, node: NodeId) -> dict[int, DeviceHealth]:
        heard, now = self._heard.get(node, {}), time.monotonic()
        return {
            gpu: device if now - heard[gpu] < FRESH_S else replace(device, counters={})
            for gpu, device in self._told.get(node, {}).items()
        }


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
