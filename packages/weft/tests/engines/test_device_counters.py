"""Counters that agents tell of devices: known ones alone, and none that are old."""

from __future__ import annotations

from typing import Any

import pytest

from weft.core.model.cluster import Node
from weft.core.model.job import JobId, NodeId
from weft.engines.attempts import health_board
from weft.engines.attempts.health_board import HealthBoard, read_health

N1 = Node(NodeId("n1"), "a100", 2)
KEY = (JobId("job"), 1)


def line(**fields: Any) -> dict[str, Any]:
    devices = [(0, "", ()), (1, "", ())]
    return {"node": "n1", "alone": True, "world": 1, "devices": devices, "paces": [], **fields}


def test_counters_are_those_that_are_known_and_can_be_right() -> None:
    values = {"sm": 0.5, "temp_c": 61, "power_w": -1.0, "held_gb": float("nan"), "other": 3.0}

    first, second = read_health(line(counters=[(0, values)])).devices

    assert first.counters == {"sm": 0.5, "temp_c": 61.0}
    assert second.counters == {}


def test_agents_of_earlier_versions_tell_none() -> None:
    assert [device.counters for device in read_health(line()).devices] == [{}, {}]


def test_what_was_told_long_ago_says_nothing_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    board = HealthBoard()
    board.add_lines(KEY, [read_health(line(counters=[(0, {"sm": 0.5})]))])
    assert board.devices(N1)[0].counters == {"sm": 0.5}

    monkeypatch.setattr(health_board, "FRESH_S", 0.0)

    assert board.devices(N1)[0].counters == {}
    assert len(board.devices(N1)) == 2  # faults stay
