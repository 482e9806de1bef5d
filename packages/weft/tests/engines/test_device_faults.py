"""From readings of a GPU to whether it should be used."""

from __future__ import annotations

import pytest

from weft.wire.gpu_health import SLOW_LOOKS, DeviceReading, DeviceRecord

UP = frozenset({0, 1, 2})


def fold(*readings: DeviceReading) -> DeviceRecord:
    record = DeviceRecord()
    for reading in readings:
        record.add_reading(reading)
    return record


@pytest.mark.parametrize(
    ("readings", "fault"),
    [
        ([DeviceReading(xids=(79,)), DeviceReading()], "Xid 79: it has fallen off the bus"),
        ([DeviceReading(xids=(999,))], "Xid 999: an error of the device"),
        (
            [DeviceReading(errors=0), DeviceReading(errors=2)],
            "memory errors that were not corrected: 2",
        ),
        ([DeviceReading(links=UP), DeviceReading(links=UP - {1})], "NVLinks that went down: 1"),
        (
            [DeviceReading(slowed=True)] * SLOW_LOOKS,
            "slowed down by heat or power for five minutes",
        ),
        ([DeviceReading(lost=True, xids=(48,))], "the driver has lost it; Xid 48"),
    ],
)
def test_what_the_hardware_did_is_a_fault(readings: list[DeviceReading], fault: str) -> None:
    assert fold(*readings).why_not_to_use.startswith(fault)


@pytest.mark.parametrize(
    ("readings", "note"),
    [
        ([DeviceReading(xids=(31, 31))], "Xid 31 of a program, 2 times"),
        ([DeviceReading(slowed=True)] * (SLOW_LOOKS - 1), "slowed down by heat or power"),
        ([DeviceReading(temp_c=71, errors=None, links=None)], "71 °C"),
        (
            [
                *[DeviceReading(slowed=True)] * (SLOW_LOOKS - 1),
                DeviceReading(),
                DeviceReading(slowed=True),
            ],
            "slowed",
        ),
    ],
)
def test_what_a_program_did_or_what_passes_is_no_fault(
    readings: list[DeviceReading], note: str
) -> None:
    record = fold(*readings)

    assert record.why_not_to_use == ""
    assert any(noted.startswith(note) for noted in record.notes)


def test_a_link_that_comes_back_is_no_fault_any_more() -> None:
    assert (
        fold(
            DeviceReading(links=UP), DeviceReading(links=frozenset()), DeviceReading(links=UP)
        ).why_not_to_use
        == ""
    )
    assert fold(DeviceReading(links=frozenset({0})), DeviceReading(links=None)).why_not_to_use == ""
