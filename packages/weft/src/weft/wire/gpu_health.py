"""Health of a machine's GPUs by NVIDIA's library, and what jobs print when one fails.

By ctypes: the library comes with the driver. What a program did wrong is no fault of its device.

Under MPS a fatal fault of one client ends all clients of its GPU, and nothing says whose.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from weft.frozen import frozen

LIBRARY = "libnvidia-ml.so.1"
OK, IS_LOST = 0, 15
XID_EVENTS = 0x8
DIE, UNCORRECTED, SINCE_BOOT = 0, 1, 0  # which sensor, which errors, since when
HW_SLOWDOWN, HW_HEAT, HW_POWER = 0x8, 0x40, 0x80  # why the hardware itself lowers clocks
MOST_LINKS = 18
MOST_EVENTS = 100  # in one look
LOOK_S = 5.0
SLOW_LOOKS = 60  # in a row: five minutes
# As in NVIDIA's device plug-in: exceptions, page faults and the like, of the program that ran.
OF_PROGRAMS = (13, 31, 43, 45, 68, 109)
XIDS = {
    48: "a memory error that was not corrected",
    62: "its controller has halted",
    63: "a row of its memory was retired",
    64: "a row of its memory could not be retired",
    74: "an error of NVLink",
    79: "it has fallen off the bus",
    92: "many memory errors that were corrected",
    94: "a memory error that was contained",
    95: "a memory error that was not contained",
    119: "its firmware does not answer",
    120: "an error of its firmware",
    140: "a memory error it cannot recover from",
}


@frozen
class DeviceReading:
    """Of one device at one look; None where it does not tell.

    `lost` says that the driver cannot reach it, `xids` are the driver's errors since the last look,
    `errors` memory errors that were not corrected, since it was loaded. `slowed` says that the
    hardware has lowered its clocks now, for heat or power. `links` are its NVLinks that are up.
    `sm` is the part of the last second or so in which a kernel ran on it, `held_gb` what all
    processes hold of its memory.
    """

    lost: bool = False
    xids: tuple[int, ...] = ()
    errors: int | None = None
    slowed: bool = False
    links: frozenset[int] | None = None
    temp_c: int | None = None
    sm: float | None = None
    held_gb: float | None = None
    power_w: float | None = None

    @property
    def counters(self) -> dict[str, float]:
        """The values that can be drawn over time, as far as they are known."""
        readings = {
            "sm": self.sm,
            "held_gb": self.held_gb,
            "power_w": self.power_w,
            "temp_c": self.temp_c,
            "errors": self.errors,
        }
        return {name: float(value) for name, value in readings.items() if value is not None}


@dataclass(slots=True)
class DeviceRecord:
    """The sum of the readings of one device: a pure fold."""

    _xids: dict[int, int] = field(default_factory=dict)
    _links: frozenset[int] = frozenset()
    _slow: int = 0
    _last: DeviceReading = field(default_factory=DeviceReading)

    def add_reading(self, reading: DeviceReading) -> None:
        """Take a reading of the device into its record."""
        for xid in reading.xids:
            self._xids[xid] = self._xids.get(xid, 0) + 1
        self._links |= reading.links or frozenset()
        self._slow = self._slow + 1 if reading.slowed else 0
        self._last = reading

    @property
    def why_not_to_use(self) -> str:
        """The reason why it should not be used; empty while it may."""
        last, faults = self._last, list[str]()
        if last.lost:
            faults.append("the driver has lost it")
        faults += [
            f"Xid {xid}: {XIDS.get(xid, 'an error of the device')}"
            for xid in sorted(self._xids)
            if xid not in OF_PROGRAMS
        ]
        if last.errors:
            faults.append(f"memory errors that were not corrected: {last.errors}")
        if last.links is not None and (down := self._links - last.links):
            faults.append(f"NVLinks that went down: {', '.join(map(str, sorted(down)))}")
        if self._slow >= SLOW_LOOKS:
            faults.append("slowed down by heat or power for five minutes")
        return "; ".join(faults)

    @property
    def counters(self) -> dict[str, float]:
        return self._last.counters

    @property
    def notes(self) -> tuple[str, ...]:
        """Other observations."""
        last, notes = self._last, list[str]()
        if last.temp_c is not None:
            notes.append(f"{last.temp_c} °C")
        if last.slowed and self._slow < SLOW_LOOKS:
            notes.append("slowed down by heat or power")
        notes += [
            f"Xid {xid} of a program, {count} times"
            for xid, count in sorted(self._xids.items())
            if xid in OF_PROGRAMS
        ]
        return tuple(notes)


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Busy(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))  # percent


class _Memory(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class DeviceCounters:
    """Reads the GPUs with these numbers, as the driver counts them; OSError without a driver."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        if (code := self._call("nvmlInit_v2")) != OK:
            raise OSError(f"nvmlInit_v2 answered {code}")
        self._handles: dict[int, ctypes.c_void_p] = {}
        self._events = ctypes.c_void_p()
        hears = self._call("nvmlEventSetCreate", ctypes.byref(self._events)) == OK
        for number in numbers:
            handle = self._handles[number] = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
            if hears:
                kinds = ctypes.c_ulonglong(XID_EVENTS)
                self._call("nvmlDeviceRegisterEvents", handle, kinds, self._events)

    def read(self) -> dict[int, DeviceReading]:
        xids = self._new_xids()
        return {number: self._read(handle, xids) for number, handle in self._handles.items()}

    def _read(
        self, handle: ctypes.c_void_p, xids: Sequence[tuple[int | None, int]]
    ) -> DeviceReading:
        heat, errors = ctypes.c_uint(), ctypes.c_ulonglong()
        slowed = ctypes.c_ulonglong()
        which = ctypes.c_uint(UNCORRECTED), ctypes.c_uint(SINCE_BOOT)
        hot = self._call("nvmlDeviceGetTemperature", handle, ctypes.c_uint(DIE), _out(heat))
        bad = self._call("nvmlDeviceGetTotalEccErrors", handle, *which, _out(errors))
        slow = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", handle, _out(slowed))
        busy, memory, milliwatts = _Busy(), _Memory(), ctypes.c_uint()
        busy_told = self._call("nvmlDeviceGetUtilizationRates", handle, _out(busy)) == OK
        memory_told = self._call("nvmlDeviceGetMemoryInfo", handle, _out(memory)) == OK
        power_told = self._call("nvmlDeviceGetPowerUsage", handle, _out(milliwatts)) == OK
        return DeviceReading(
            lost=IS_LOST in (hot, bad, slow),
            xids=tuple(xid for device, xid in xids if device == handle.value),
            errors=errors.value if bad == OK else None,
            slowed=slow == OK and bool(slowed.value & (HW_SLOWDOWN | HW_HEAT | HW_POWER)),
            links=self._links(handle),
            temp_c=heat.value if hot == OK else None,
            sm=busy.gpu / 100.0 if busy_told else None,
            held_gb=memory.used / 1e9 if memory_told else None,
            power_w=milliwatts.value / 1e3 if power_told else None,
        )

    def _links(self, handle: ctypes.c_void_p) -> frozenset[int] | None:
        up, answered = set[int](), False
        for link in range(MOST_LINKS):
            active = ctypes.c_uint()
            answer = self._call(
                "nvmlDeviceGetNvLinkState", handle, ctypes.c_uint(link), _out(active)
            )
            answered = answered or answer == OK
            if answer == OK and active.value:
                up.add(link)
        return frozenset(up) if answered else None

    def _new_xids(self) -> list[tuple[int | None, int]]:
        xids: list[tuple[int | None, int]] = []
        while len(xids) < MOST_EVENTS:
            event = _Event()
            at_once = ctypes.c_uint(0)
            if self._call("nvmlEventSetWait_v2", self._events, _out(event), at_once) != OK:
                break
            if event.kind == XID_EVENTS:
                xids.append((event.device, int(event.data)))
        return xids

    def _call(self, name: str, *arguments: object) -> int | None:
        """The driver's answer; None from one that does not know the question."""
        with suppress(AttributeError):
            return int(self._library[name](*arguments))
        return None


class DeviceWatch:
    """Looks at GPUs by the driver's numbers; nothing is known about them where no driver tells.

    `seen` has the record of each that was looked at, in the order in which they were named.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._records = {number: DeviceRecord() for number in numbers}
        self._counters: DeviceCounters | None = None
        self._next = 0.0
        self.seen: tuple[DeviceRecord, ...] = ()
        if numbers:
            with suppress(OSError):
                self._counters = DeviceCounters(numbers)

    def poll(self, *, now: bool = False) -> None:
        """Every few seconds, however often it is called; at once if it has to be `now`."""
        if self._counters is None or (time.monotonic() < self._next and not now):
            return
        self._next = time.monotonic() + LOOK_S
        for index, reading in self._counters.read().items():
            self._records[index].add_reading(reading)
        self.seen = tuple(self._records.values())


def _out(value: Any) -> Any:
    return ctypes.byref(value)


FAULTS = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "device-side assert triggered",
    "hardware stack error",
    "misaligned address",
    "unspecified launch failure",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_LAUNCH_FAILED",
    "uncorrectable ECC error",
)
OF_OTHERS = (
    "MPS client failed to connect",
    "MPS client was terminated",
    "MPS client has been terminated",
    "MPS server is not ready",
    "MPS RPC",
    "CUDA_ERROR_MPS_",
)


def is_fault(text: str) -> bool:
    """True if a line reports a fault, whatever caused it."""
    return any(words in text for words in (*FAULTS, *OF_OTHERS))


def is_of_others(text: str) -> bool:
    """True if a line tells that a client was ended by what others did."""
    return any(words in text for words in OF_OTHERS)
