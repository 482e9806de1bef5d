"""Agreement of a service and an agent if the processes of an attempt run, by two small files.

The service writes what it wants (`sleep.json`), the agent what is (`asleep.json`). Neither waits
for the disk: both mean something only while the machine runs, and a request comes up to several
times per second.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, TypeVar

from weft.base.errors import WireError
from weft.frozen import frozen
from weft.wire.attempt import read_json

T = TypeVar("T")
SLEEP, ASLEEP = "sleep.json", "asleep.json"
AWAKE, FROZEN, SUSPENDED = "awake", "frozen", "suspended"
DEPTH = {AWAKE: 0, FROZEN: 1, SUSPENDED: 2}
# A rank that waits for another one in a collective gives up after so long, unless told otherwise.
COLLECTIVE_S = 600.0


@frozen
class SleepRequest:
    """The wishes of all who want something: the deepest of these counts.

    `number` is answered by the agent. Frozen processes that wait for each other are let run for a
    moment before `air_s` have passed, 0 for never. They are woken when no service has listened to
    their agent for `alone_s`, or, where that cannot be known, when `beat` has not changed for so
    long.
    """

    number: int
    wanted: Mapping[str, str] = field(default_factory=dict)
    air_s: float = 0.0
    alone_s: float = 30.0
    beat: int = 0

    @property
    def state(self) -> str:
        return max(self.wanted.values(), key=DEPTH.__getitem__, default=AWAKE)


@frozen
class SleepState:
    """The state of the processes of an attempt: the answer to request `number`.

    `reason` says why it is not what was asked for. `took_s` is how long it took to get there.
    `host_gb` is what the suspended processes hold of the host's memory for their devices.
    """

    number: int
    state: str = AWAKE
    reason: str = ""
    took_s: float = 0.0
    host_gb: float = 0.0


def write_request(folder: Path, request: SleepRequest) -> None:
    """Leave it for the agent of the attempt in `folder`."""
    _write(folder / SLEEP, asdict(request))


def read_request(folder: Path) -> SleepRequest | None:
    """The last request; None if there never was one."""
    return _read(folder / SLEEP, _request, "a request")


def _request(body: Any) -> SleepRequest:
    wanted = {str(who): _state(state) for who, state in body["wanted"].items()}
    times = float(body["air_s"]), float(body["alone_s"])
    return SleepRequest(int(body["number"]), wanted, *times, int(body.get("beat", 0)))


def write_state(folder: Path, state: SleepState) -> None:
    """Answer the request."""
    _write(folder / ASLEEP, asdict(state))


def read_state(folder: Path) -> SleepState | None:
    """The last answer of the agent; None if it never was asked."""
    return _read(folder / ASLEEP, _reported, "an agent's")


def _reported(body: Any) -> SleepState:
    return SleepState(
        int(body["number"]),
        _state(body["state"]),
        str(body["reason"])[:2_000],
        float(body["took_s"]),
        float(body["host_gb"]),
    )


def _read(path: Path, made_of: Callable[[Any], T], what: str) -> T | None:
    body = read_json(path)
    if body is None:
        return None
    try:
        return made_of(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"{path.name} is not {what}: {error!r}") from error


def _state(value: Any) -> str:
    if value not in DEPTH:
        raise ValueError(f"{value!r} is no state of processes")
    return str(value)


def _write(path: Path, body: Any) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(body))
    fresh.replace(path)
