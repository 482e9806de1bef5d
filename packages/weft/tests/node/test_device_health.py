"""What the driver's library tells of devices, in the shapes in which it tells it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from weft.core.events.report import Report
from weft.node.measuring.outside import MeasuredHealth, ObservedDevices

NOT_SUPPORTED = 3


class Library:
    """Functions as NVML has them: they write where they are told and return a code."""

    def __init__(self, *gpus: dict[str, int]) -> None:
        self._gpus = gpus

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's names
        return 0

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:  # noqa: N802
        out._obj.value = len(self._gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, number: ctypes.c_uint, out: Any) -> int:  # noqa: N802
        out._obj.value = number.value + 1
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: ctypes.c_void_p, out: Any) -> int:  # noqa: N802
        return self._tell(handle, "milliwatts", out)

    def nvmlDeviceGetTemperature(self, handle: ctypes.c_void_p, sensor: Any, out: Any) -> int:  # noqa: N802
        assert sensor.value == 0
        return self._tell(handle, "celsius", out)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, since: Any, out: Any) -> int:  # noqa: N802
        assert (kind.value, since.value) == (1, 0)
        return self._tell(handle, "errors", out)

    def _tell(self, handle: ctypes.c_void_p, name: str, out: Any) -> int:
        value = self._gpus[int(handle.value or 0) - 1].get(name)
        if value is None:
            return NOT_SUPPORTED
        out._obj.value = value
        return 0


def devices(monkeypatch: pytest.MonkeyPatch, *gpus: dict[str, int]) -> ObservedDevices:
    monkeypatch.setattr("weft.node.measuring.outside.ctypes.CDLL", lambda name: Library(*gpus))
    return ObservedDevices(())


def test_power_is_summed_the_hottest_counts_and_errors_add_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    health = devices(
        monkeypatch,
        {"milliwatts": 412_500, "celsius": 61, "errors": 0},
        {"milliwatts": 87_500, "celsius": 74, "errors": 1 << 33},
    ).health()

    assert health == MeasuredHealth(500.0, 74.0, float(1 << 33))


def test_a_device_without_error_counters_tells_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    health = devices(monkeypatch, {"milliwatts": 30_000, "celsius": 40}).health()

    assert health == MeasuredHealth(30.0, 40.0, None)


def test_what_is_seen_of_devices_alone_is_not_training() -> None:
    report = Report.parse({"power_w": 500.0, "temp_c": 74.0, "device_errors": 2.0})

    assert not report.trains
    assert report.values() == {"power_w": 500.0, "temp_c": 74.0, "device_errors": 2.0}
