"""From readings of a GPU to whether it should be used."""

from __future__ import annotations

import pytest

from weft.wire.gpus.health import SLOW_LOOKS, DeviceRecord, Reading

UP = frozenset({0, 1, 2})


def fold(*readings: Reading) -> DeviceRecord:
    record = DeviceRecord()
    for reading in readings:
        record.take(reading)
    return record


@pytest.mark.parametrize(
    ("readings", "fault"),
    [
        ([Reading(xids=(79,)), Reading()], "Xid 79: it has fallen off the bus"),
        ([Reading(xids=(999,))], "Xid 999: an error of the device"),
        ([Reading(errors=0), Reading(errors=2)], "memory errors that were not corrected: 2"),
        ([Reading(links=UP), Reading(links=UP - {1})], "NVLinks that went down: 1"),
        ([Reading(slowed=True)] * SLOW_LOOKS, "slowed down by heat or power for five minutes"),
        ([Reading(lost=True, xids=(48,))], "the driver has lost it; Xid 48"),
    ],
)
def test_what_the_hardware_did_is_a_fault(readings: list[Reading], fault: str) -> None:
    assert fold(*readings).fault.startswith(fault)


@pytest.mark.parametrize(
    ("readings", "note"),
    [
        ([Reading(xids=(31, 31))], "Xid 31 of a program, 2 times"),
        ([Reading(slowed=True)] * (SLOW_LOOKS - 1), "slowed down by heat or power"),
        ([Reading(temp_c=71, errors=None, links=None)], "71 °C"),
        ([*[Reading(slowed=True)] * (SLOW_LOOKS - 1), Reading(), Reading(slowed=True)], "slowed"),
    ],
)
def test_what_a_program_did_or_what_passes_is_no_fault(readings: list[Reading], note: str) -> None:
    record = fold(*readings)

    assert record.fault == ""
    assert any(noted.startswith(note) for noted in record.notes)


def test_a_link_that_comes_back_is_no_fault_any_more() -> None:
    assert fold(Reading(links=UP), Reading(links=frozenset()), Reading(links=UP)).fault == ""
    assert fold(Reading(links=frozenset({0})), Reading(links=None)).fault == ""
