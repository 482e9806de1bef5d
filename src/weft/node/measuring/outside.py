"""An attempt as seen from outside, whatever it runs: its device, its CPU time, its disks."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from weft.frozen import frozen
from weft.node.measuring.health import visible_devices
from weft.node.measuring.nvml import NO_HEALTH, Devices, Health
from weft.wire.attempt import AttemptSpec
from weft.wire.processes import PROC, skip_gone

log = logging.getLogger(__name__)

TICKS = os.sysconf("SC_CLK_TCK")
Pids = Callable[[], Collection[int]]


@frozen
class Observation:
    """What is known at one look; None where nothing tells."""

    held_gb: float | None = None
    sm: float | None = None
    cpus: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None
    health: Health = NO_HEALTH


@frozen
class Usage:
    """Of one process since it began."""

    cpu_s: float = 0.0
    read: int = 0
    written: int = 0


class Outside:
    """Looks at all processes of an attempt; `pids` lists them."""

    def __init__(self, spec: AttemptSpec, pids: Pids) -> None:
        self._pids = pids
        self._spec = spec
        self._devices: Devices | None = None
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if spec.learnt else spec.visible
        self._tried = visible is None
        self._usage: dict[int, Usage] = {}
        self._looked = 0.0

    def look(self) -> Observation:
        """Everything since the last look."""
        pids = [*self._pids()]
        cpus, read, written = self._host(pids)
        held, sm, health = self._device(pids)
        return Observation(held, sm, cpus, read, written, health)

    def _host(self, pids: Collection[int]) -> tuple[float | None, float | None, float | None]:
        now = time.monotonic()
        before, took = self._usage, now - self._looked
        self._usage = {pid: read_usage(pid) for pid in pids}
        first, self._looked = not self._looked, now
        if first or took <= 0.0:
            return None, None, None
        cpu_s, read, written = 0.0, 0, 0
        for pid, used in self._usage.items():
            was = before.get(pid, Usage())
            if used.cpu_s < was.cpu_s:
                was = Usage()  # its number was given to another
            cpu_s += used.cpu_s - was.cpu_s
            read += max(used.read - was.read, 0)
            written += max(used.written - was.written, 0)
        return cpu_s / took, read / 1e6 / took, written / 1e6 / took

    def _device(self, pids: Collection[int]) -> tuple[float | None, float | None, Health]:
        if not self._tried:
            self._tried = True
            try:
                self._devices = Devices(visible_devices(self._spec))
            except (OSError, AttributeError) as error:
                log.info("devices are not measured: %s", error)
        if self._devices is None:
            return None, None, NO_HEALTH
        try:
            devices = self._devices
            return devices.memory(pids), devices.utilisation(pids), devices.health()
        except (OSError, AttributeError) as error:  # an old driver does not know every question
            log.info("devices are not measured any more: %s", error)
            self._devices = None
            return None, None, NO_HEALTH


def read_usage(pid: int) -> Usage:
    """What a process itself has used; nothing of one that is gone."""
    cpu_s, read, written = 0.0, 0, 0
    with skip_gone():
        text = (PROC / str(pid) / "stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        cpu_s = sum(int(ticks) for ticks in fields[11:13]) / TICKS
    with skip_gone():  # or another user's
        for line in Path(PROC, str(pid), "io").read_text().splitlines():
            name, _, value = line.partition(": ")
            if name == "read_bytes":
                read = int(value)
            elif name == "write_bytes":
                written = int(value)
    return Usage(cpu_s, read, written)
