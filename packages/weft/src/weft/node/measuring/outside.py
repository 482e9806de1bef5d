"""An attempt as seen from outside, whatever it runs: its device, its CPU time, its disks.

A line of the attempt's log every half a minute, and at once when a device has a fault. A gang waits
for its slowest rank, so all of them step equally fast; what tells them apart is the time each
takes by itself, from the end of a step to the next backward pass, before it meets the others.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from weft.base.messages import Counted
from weft.frozen import frozen
from weft.node.attempt_log import Journal
from weft.wire.attempt import AttemptSpec
from weft.wire.gpu_check import check_gpus
from weft.wire.gpu_health import DeviceWatch
from weft.wire.processes import PROC, skip_gone

EVERY_S = 30.0  # between two lines
AT_START_S = 60.0  # a job that fails within it may not have got as far as its GPUs


class Paces:
    """Seconds that ranks took lately, by what their watchers count."""

    def __init__(self) -> None:
        self._now: dict[int, Counted] = {}
        self._before: dict[int, Counted] = {}

    def take(self, message: Counted) -> None:
        if message.own_steps > 0.0:
            self._now[message.rank] = message

    def window(self) -> list[tuple[int, float, float]]:
        """Since the last call: each rank with what a step took it alone, and with the others."""
        rows = []
        for rank, now in sorted(self._now.items()):
            was = self._before.get(rank)
            if was is not None and was.pid == now.pid and was.unit == now.unit:
                own_steps, steps = now.own_steps - was.own_steps, now.steps - was.steps
                if own_steps > 0.0 and steps > 0.0 and now.at > was.at:
                    own_s = (now.own_s - was.own_s) / own_steps
                    rows.append((rank, own_s, (now.at - was.at) / steps))
        self._before = dict(self._now)
        return rows


class HealthLines:
    """Reports of one attempt; its devices are watched here where no engine on this machine does."""

    def __init__(self, spec: AttemptSpec, journal: Journal) -> None:
        self._spec, self._journal = spec, journal
        self._watch = DeviceWatch(visible_devices(spec) if spec.part else ())
        self._paces: Paces | None = Paces() if spec.world_size > 1 else None
        self._began = time.monotonic()
        self._next = self._began + EVERY_S
        self._faults: tuple[str, ...] = ()

    def take(self, message: Counted) -> None:
        if self._paces is not None:
            self._paces.take(message)

    def forget_ranks(self) -> None:
        """Forget the ranks, which have changed: their numbers are not those of devices any more."""
        self._paces = None

    def poll(self, *, now: bool = False) -> None:
        """Write what is due; `now` looks at devices although they were just looked at."""
        self._watch.poll(now=now)
        faults = tuple(record.why_not_to_use for record in self._watch.seen)
        if faults == self._faults and time.monotonic() < self._next:
            return
        paces = self._read_paces() if time.monotonic() >= self._next else []
        self._faults, self._next = faults, time.monotonic() + EVERY_S
        if self._watch.seen or paces:
            self._journal.write(
                "health",
                node=self._spec.node,
                alone=not self._spec.learnt,
                world=self._spec.world_size,
                devices=[
                    (gpu, record.why_not_to_use, record.notes)
                    for gpu, record in zip(self._numbers(), self._watch.seen, strict=False)
                ],
                counters=[
                    (gpu, record.counters)
                    for gpu, record in zip(self._numbers(), self._watch.seen, strict=False)
                ],
                paces=paces,
            )

    def check_devices(self) -> None:
        """Open the attempt's GPUs, whose processes are gone: it failed soon after its start."""
        spec = self._spec
        shared = spec.turns.weight < 1.0 or spec.gpu_mem_gb > 0.0
        if shared or time.monotonic() - self._began > AT_START_S:
            return
        names = [str(number) for number in visible_devices(spec)]
        faults = check_gpus(names)
        checked = [
            (gpu, faults[name])
            for gpu, name in zip(self._numbers(), names, strict=False)
            if name in faults
        ]
        if checked:
            about = {"node": spec.node, "alone": not spec.learnt, "world": spec.world_size}
            self._journal.write("health", **about, devices=[], paces=[], checked=checked)

    def _numbers(self) -> Sequence[int]:
        """Devices as the plan numbers them; as the driver does where the plan cannot name them."""
        return visible_devices(self._spec) if self._spec.learnt else self._spec.devices

    def _read_paces(self) -> list[tuple[int, int, float, float]]:
        rows = [] if self._paces is None else self._paces.window()
        first, devices = self._spec.first_rank, self._numbers() or self._spec.devices
        return [
            (rank, devices[rank - first], own_s, step_s)
            for rank, own_s, step_s in rows
            if 0 <= rank - first < len(devices)
        ]


def visible_devices(spec: AttemptSpec) -> list[int]:
    """The devices that CUDA_VISIBLE_DEVICES names by number; none where it does otherwise."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if spec.learnt else spec.visible
    parts = [part.strip() for part in (visible or "").split(",")]
    return [int(part) for part in parts] if all(part.isdigit() for part in parts) else []


# ---- Device memory and utilisation of processes, and how devices are, asked of the driver's
# library
#
# By ctypes: the library comes with the driver, a package for it may not be there. Utilisation
# is told for each process where the driver shares time between them; under MPS it is the
# server's.


LIBRARY = "libnvidia-ml.so.1"
OK, TOO_SMALL = 0, 7
DIE, UNCORRECTED, SINCE_BOOT = 0, 1, 0  # which sensor, which errors, since when
MOST_PROCESSES = 1024
UNKNOWN_BYTES = (1 << 64) - 1


def _numbers(*names: str) -> tuple[tuple[str, type[ctypes.c_uint]], ...]:
    return tuple((name, ctypes.c_uint) for name in names)


class _Running(ctypes.Structure):
    _fields_ = (
        *_numbers("pid"),
        ("used", ctypes.c_ulonglong),
        *_numbers("gpu_instance", "compute_instance"),
    )


class _Utilisation(ctypes.Structure):
    _fields_ = (
        *_numbers("pid"),
        ("at", ctypes.c_ulonglong),
        *_numbers("sm", "memory", "encoder", "decoder"),
    )


@frozen
class MeasuredHealth:
    """Power of all devices, the hottest one's temperature, and uncorrected memory errors.

    None where a device does not tell.
    """

    power_w: float | None = None
    temp_c: float | None = None
    errors: float | None = None


NO_HEALTH = MeasuredHealth()


class ObservedDevices:
    """The GPUs of this machine with these numbers; all of them where none are given."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._library = ctypes.CDLL(LIBRARY)  # OSError where there is no driver
        self._since: dict[int, int] = {}
        self._call("nvmlInit_v2")
        count = ctypes.c_uint(0)
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        wanted = numbers or range(count.value)
        self._handles = {number: self._open(number) for number in wanted if number < count.value}

    def most_memory_gb(self, pids: Collection[int]) -> float | None:
        """GB that these processes hold of the device where they hold most; None if it is secret."""
        wanted, most = set(pids), 0.0
        for handle in self._handles.values():
            used = [running.used for running in self._running(handle) if running.pid in wanted]
            if UNKNOWN_BYTES in used:
                return None
            most = max(most, sum(used) / 1e9)
        return most

    def utilisation(self, pids: Collection[int]) -> float | None:
        """Part of the time since the last call in which kernels of these processes ran, 0 to 1.

        Of the device where that is most; None where the driver does not tell, as under MPS.
        """
        wanted, parts = set(pids), list[float]()
        for number, handle in self._handles.items():
            own: dict[int, list[int]] = {}
            for pid, percent in self._utilisation(number, handle):
                if pid in wanted:
                    own.setdefault(pid, []).append(percent)
            if own:
                busy = sum(sum(each) / len(each) for each in own.values())
                parts.append(min(busy / 100.0, 1.0))
        return max(parts, default=None)

    def health(self) -> MeasuredHealth:
        power = self._every("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        heat = self._every("nvmlDeviceGetTemperature", ctypes.c_uint, DIE)
        errors = self._every(
            "nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, UNCORRECTED, SINCE_BOOT
        )
        return MeasuredHealth(
            sum(power) / 1e3 if power else None,
            float(max(heat)) if heat else None,
            float(sum(errors)) if errors else None,
        )

    def _every(
        self, name: str, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong], *which: int
    ) -> list[int]:
        """A number of each device that tells it; many tell nothing of errors."""
        values = []
        for handle in self._handles.values():
            value = kind(0)
            asked = [ctypes.c_uint(number) for number in which]
            with suppress(OSError):
                self._call(name, handle, *asked, ctypes.byref(value))
                values.append(int(value.value))
        return values

    def close(self) -> None:
        """Let go of the library."""
        with suppress(OSError):
            self._call("nvmlShutdown")

    def _open(self, number: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
        return handle

    def _running(self, handle: ctypes.c_void_p) -> list[_Running]:
        count = ctypes.c_uint(MOST_PROCESSES)
        rows = (_Running * MOST_PROCESSES)()
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), rows)
        return list(rows[: count.value])

    def _utilisation(self, number: int, handle: ctypes.c_void_p) -> list[tuple[int, int]]:
        since = self._since.get(number, int((time.time() - 1.0) * 1e6))
        count = ctypes.c_uint(MOST_PROCESSES)
        rows = (_Utilisation * MOST_PROCESSES)()
        call = self._library.nvmlDeviceGetProcessUtilization
        if call(handle, rows, ctypes.byref(count), ctypes.c_ulonglong(since)) != OK:
            return []  # also where there is nothing new
        used = [utilisation for utilisation in rows[: count.value] if utilisation.pid]
        self._since[number] = max((utilisation.at for utilisation in used), default=since)
        return [(utilisation.pid, utilisation.sm) for utilisation in used if utilisation.sm <= 100]

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != OK:
            raise OSError(f"{name} answered {code}")


# ---- An attempt as seen from outside, whatever it runs


log = logging.getLogger(__name__)

TICKS = os.sysconf("SC_CLK_TCK")
Pids = Callable[[], Collection[int]]


@frozen
class ProcessObservation:
    """The measurements of one poll; None where nothing tells."""

    held_gb: float | None = None
    sm: float | None = None
    cpus: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None
    health: MeasuredHealth = NO_HEALTH


@frozen
class ProcessUsage:
    """Of one process since it began."""

    cpu_s: float = 0.0
    read: int = 0
    written: int = 0


class Outside:
    """Looks at all processes of an attempt; `pids` lists them."""

    def __init__(self, spec: AttemptSpec, pids: Pids) -> None:
        self._pids = pids
        self._spec = spec
        self._devices: ObservedDevices | None = None
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if spec.learnt else spec.visible
        self._tried = visible is None
        self._usage: dict[int, ProcessUsage] = {}
        self._looked, self._cpu_s = 0.0, 0.0

    def observe(self) -> ProcessObservation:
        """Everything since the last look."""
        pids = [*self._pids()]
        cpus, read, written = self._host(pids)
        held, sm, health = self._device(pids)
        return ProcessObservation(held, sm, cpus, read, written, health)

    def cpu_time(self) -> float:
        """CPU seconds of all processes that were seen, until now."""
        since = 0.0
        for pid in self._pids():
            before = self._usage.get(pid, ProcessUsage())
            since += max(read_usage(pid).cpu_s - before.cpu_s, 0.0)
        return self._cpu_s + since

    def resident_gb(self) -> float:
        """The most host memory that one process has had."""
        return max((read_peak_gb(pid) for pid in self._pids()), default=0.0)

    def _host(self, pids: Collection[int]) -> tuple[float | None, float | None, float | None]:
        now = time.monotonic()
        before, took = self._usage, now - self._looked
        self._usage = {pid: read_usage(pid) for pid in pids}
        first, self._looked = not self._looked, now
        cpu_s, read, written = 0.0, 0, 0
        for pid, used in self._usage.items():
            was = before.get(pid, ProcessUsage())
            if used.cpu_s < was.cpu_s:
                was = ProcessUsage()  # its number was given to another
            cpu_s += used.cpu_s - was.cpu_s
            read += max(used.read - was.read, 0)
            written += max(used.written - was.written, 0)
        self._cpu_s += cpu_s
        if first or took <= 0.0:
            return None, None, None
        return cpu_s / took, read / 1e6 / took, written / 1e6 / took

    def _device(self, pids: Collection[int]) -> tuple[float | None, float | None, MeasuredHealth]:
        if not self._tried:
            self._tried = True
            try:
                self._devices = ObservedDevices(visible_devices(self._spec))
            except (OSError, AttributeError) as error:
                log.info("devices are not measured: %s", error)
        if self._devices is None:
            return None, None, NO_HEALTH
        try:
            devices = self._devices
            return devices.most_memory_gb(pids), devices.utilisation(pids), devices.health()
        except (OSError, AttributeError) as error:  # an old driver does not know every question
            log.info("devices are not measured any more: %s", error)
            self._devices = None
            return None, None, NO_HEALTH


def read_usage(pid: int) -> ProcessUsage:
    """The usage of a process itself; nothing of one that is gone."""
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
    return ProcessUsage(cpu_s, read, written)


def read_peak_gb(pid: int) -> float:
    """The most host memory that a process has had; nothing of one that is gone."""
    with skip_gone():
        for line in Path(PROC, str(pid), "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e9
    return 0.0
