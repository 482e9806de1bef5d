"""What GPUs did over time is noted in files of a node, and read back thinned."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from weft.app.serve import device_history
from weft.app.serve.device_history import WINDOW_S, DeviceHistory
from weft.core.model.job import NodeId
from weft.core.protocols import DeviceHealth, Engine, EngineHealth

NODE = NodeId("rack/1")
FEW_POINTS = 20


class Watched:
    """A history of what this says that the driver counts."""

    def __init__(self, state: Path | None) -> None:
        self.now = 1e9
        self.devices: tuple[DeviceHealth, ...] = ()
        engine = cast(Engine, self)
        self.history = DeviceHistory(engine, lambda: self.now, state)

    @property
    def health(self) -> EngineHealth:
        return EngineHealth(devices={NODE: self.devices})

    def poll(self, at: float, **counters: float) -> None:
        self.now, self.devices = 1e9 + at, (DeviceHealth(0, counters=counters), DeviceHealth(1))
        asyncio.run(self.history.poll())

    def read(self, since: float = 0.0) -> Any:
        history = self.history.read(NODE, since)
        columns = {gpu.gpu: gpu.counters for gpu in history.gpus}
        return SimpleNamespace(at=[at - 1e9 for at in history.at], gpus=columns)


def test_what_was_counted_is_there_after_a_restart(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.poll(0.0, sm=0.5, held_gb=10.0, temp_c=60.0)
    watched.poll(15.0, sm=0.75, held_gb=12.5, temp_c=61.0)

    history = Watched(tmp_path).read()

    assert history.at == [0.0, 15.0]
    assert list(history.gpus) == [0]  # nothing is told of the other
    assert history.gpus[0]["sm"] == [0.5, 0.75]
    assert history.gpus[0]["held_gb"] == [10.0, 12.5]
    assert history.gpus[0]["power_w"] == [None, None]
    (file,) = (tmp_path / "devices").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_only_what_is_asked_for_is_read_and_a_line_that_was_cut_off_is_passed_over(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    watched.poll(0.0, sm=0.1)
    (file,) = (tmp_path / "devices").iterdir()
    with file.open("a") as out:
        out.write('[1000000010.0,{"0":[0.2,nu\n[1,2,3]\n[1000000011.0,{"0":[0.2]}]\n')
    watched.poll(20.0, sm=0.3)

    assert watched.read().gpus[0]["sm"] == [0.1, 0.3]
    assert watched.read(since=1e9 + 5.0).at == [20.0]


def test_a_long_past_is_thinned_to_means_and_errors_to_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_history, "MOST_POINTS", FEW_POINTS)
    watched = Watched(tmp_path)
    for number in range(2 * FEW_POINTS):
        watched.poll(15.0 * number, sm=float(number % 2), errors=float(number // 2))

    history = watched.read()

    assert len(history.at) == FEW_POINTS
    assert set(history.gpus[0]["sm"]) == {0.5}
    assert history.gpus[0]["errors"][-1] == FEW_POINTS - 1


def test_a_pause_is_a_gap_of_the_line(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for at in (0.0, 15.0, 3600.0, 3615.0):
        watched.poll(at, sm=1.0)

    history = watched.read()

    assert history.gpus[0]["sm"] == [1.0, 1.0, None, 1.0, 1.0]
    assert history.at == sorted(history.at)


def test_files_never_hold_more_than_two_windows(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for number in range(60):
        watched.poll(number * WINDOW_S / 10, sm=0.5)

    history = watched.read()

    assert len(list((tmp_path / "devices").iterdir())) == 2
    assert WINDOW_S <= history.at[-1] - history.at[0] <= 2.2 * WINDOW_S


def test_without_a_folder_nothing_is_noted() -> None:
    watched = Watched(None)
    watched.poll(0.0, sm=0.5)

    assert watched.read().at == []


def test_a_node_that_nobody_looked_at_has_an_empty_history(tmp_path: Path) -> None:
    history = Watched(tmp_path).read()

    assert (history.at, history.gpus) == ([], {})
