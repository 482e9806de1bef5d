"""The use of each node's GPUs in the last hours, in small files below the state folder.

A node has one file and the one before it, so that they never grow beyond two windows. Nothing is
kept in memory, and the past is there after a restart.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from weft.app.state.folder import DEVICES, PRIVATE_FILE, PRIVATE_FOLDER
from weft.core.model.job import NodeId
from weft.core.protocols import DeviceHealth, Engine
from weft.frozen import frozen
from weft.runtime.loop.background import Repeated

WINDOW_S = 6 * 3600.0
MOST_POINTS = 400  # of a line that someone draws
GAP_S = 120.0  # without a look: the service or the driver was away
COUNTERS = ("sm", "held_gb", "power_w", "temp_c", "errors")
MEANS = ("sm", "held_gb", "power_w")  # of the others the largest counts

Row = tuple[float, Mapping[int, Sequence[float | None]]]


@frozen
class DeviceSeries:
    """One GPU: values of each counter at the times of the history, None if unknown."""

    gpu: int
    counters: Mapping[str, list[float | None]]


@frozen
class NodeHistory:
    """The times of polls, and what each GPU counted then."""

    at: list[float]
    gpus: tuple[DeviceSeries, ...]


class DeviceHistory(Repeated):
    """Notes what an engine sees of its devices; nothing without a folder or a driver."""

    every_s = 15.0
    trouble = "what GPUs do over time is not noted"

    def __init__(self, engine: Engine, now: Callable[[], float], state: Path | None) -> None:
        self._engine, self._now = engine, now
        self._folder = None if state is None else state / DEVICES

    async def poll(self) -> None:
        """Note everything that is counted now."""
        if self._folder is not None:
            devices = self._engine.health.devices
            counted = {
                node: [device for device in seen if device.counters]
                for node, seen in devices.items()
            }
            if any(counted.values()):
                await asyncio.to_thread(self._write, self._folder, counted, self._now())

    def read(self, node: NodeId, since: float) -> NodeHistory:
        """Return the history of one node, thinned to what can be drawn."""
        if self._folder is None:
            return NodeHistory([], ())
        current = _file_of(self._folder, node)
        rows = [
            row
            for path in (_before(current), current)
            for row in _read_rows(path)
            if row[0] >= since
        ]
        return _as_history(_with_gaps(list(_thin(rows)), len(rows)))

    def _write(
        self, folder: Path, devices_by_node: Mapping[NodeId, list[DeviceHealth]], at: float
    ) -> None:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        for node, devices in devices_by_node.items():
            if devices:
                path = _file_of(folder, node)
                first = next(_read_rows(path), None)
                if first is not None and at - first[0] > WINDOW_S:
                    path.replace(_before(path))
                counted = {device.gpu: _values(device.counters) for device in devices}
                line = json.dumps([round(at, 1), counted], separators=(",", ":")) + "\n"
                opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
                with os.fdopen(opened, "a", encoding="utf-8") as out:
                    out.write(line)


def _file_of(folder: Path, node: NodeId) -> Path:
    return folder / f"{quote(node, safe='')}.jsonl"


def _before(path: Path) -> Path:
    return path.with_suffix(".before")


def _values(counters: Mapping[str, float]) -> list[float | None]:
    return [
        round(counters[name], 3) if counters.get(name) is not None else None for name in COUNTERS
    ]


def _read_rows(path: Path) -> Iterator[Row]:
    """In the order in which they were written; a line that was cut off is skipped."""
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    at, gpus = json.loads(line)
                    yield float(at), {int(gpu): _checked(values) for gpu, values in gpus.items()}
                except (ValueError, TypeError, AttributeError):
                    continue
    except OSError:
        return


def _checked(values: Any) -> list[float | None]:
    numbers = [None if value is None else float(value) for value in values]
    if len(numbers) != len(COUNTERS):
        raise ValueError("not one value for each counter")
    return numbers


def _thin(rows: Sequence[Row]) -> Iterator[Row]:
    """As many rows as can be drawn, each of neighbours joined."""
    size = -(-len(rows) // MOST_POINTS) or 1
    for begin in range(0, len(rows), size):
        some = rows[begin : begin + size]
        gpus = sorted({gpu for _, each in some for gpu in each})
        yield (
            some[-1][0],
            {gpu: _joined([row[gpu] for _, row in some if gpu in row]) for gpu in gpus},
        )


def _joined(many: Sequence[Sequence[float | None]]) -> list[float | None]:
    joined: list[float | None] = []
    for name, column in zip(COUNTERS, zip(*many, strict=True), strict=True):
        known = [value for value in column if value is not None]
        if not known:
            joined.append(None)
        else:
            joined.append(sum(known) / len(known) if name in MEANS else max(known))
    return joined


def _with_gaps(rows: Sequence[Row], looks: int) -> Iterator[Row]:
    """An empty row where there was no reading for long, so that no line is drawn across."""
    longest = GAP_S * max(1, looks // max(len(rows), 1))
    following = [*rows[1:], None][: len(rows)]
    for row, after in zip(rows, following, strict=True):
        yield row
        if after is not None and after[0] - row[0] > longest:
            yield row[0] + 1.0, {}


def _as_history(rows: Iterator[Row]) -> NodeHistory:
    points = list(rows)
    gpus = sorted({gpu for _, each in points for gpu in each})
    nothing = [None] * len(COUNTERS)
    return NodeHistory(
        [at for at, _ in points],
        tuple(
            DeviceSeries(
                gpu,
                {
                    name: [each.get(gpu, nothing)[i] for _, each in points]
                    for i, name in enumerate(COUNTERS)
                },
            )
            for gpu in gpus
        ),
    )
