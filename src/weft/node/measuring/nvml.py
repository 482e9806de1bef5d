"""Device memory and utilisation of processes, and how devices are, asked of the driver's library.

By ctypes: the library comes with the driver, a package for it may not be there. Utilisation is
told for each process where the driver shares time between them; under MPS it is the server's.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Collection
from contextlib import suppress

from weft.frozen import frozen

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
class Health:
    """Power of all devices, the hottest one's temperature, and memory errors that were not mended.

    None where a device does not tell.
    """

    power_w: float | None = None
    temp_c: float | None = None
    errors: float | None = None


NO_HEALTH = Health()


class Devices:
    """The GPUs of this machine with these numbers; all of them where none are given."""

    def __init__(self, numbers: Collection[int]) -> None:
        self._library = ctypes.CDLL(LIBRARY)  # OSError where there is no driver
        self._since: dict[int, int] = {}
        self._call("nvmlInit_v2")
        count = ctypes.c_uint(0)
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        wanted = numbers or range(count.value)
        self._handles = {number: self._open(number) for number in wanted if number < count.value}

    def memory(self, pids: Collection[int]) -> float | None:
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

    def health(self) -> Health:
        """How they are now."""
        power = self._every("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        heat = self._every("nvmlDeviceGetTemperature", ctypes.c_uint, DIE)
        errors = self._every(
            "nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong, UNCORRECTED, SINCE_BOOT
        )
        return Health(
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
