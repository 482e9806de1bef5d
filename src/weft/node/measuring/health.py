"""What an agent tells about the devices of its attempt, and how long each of its ranks takes.

A line of the attempt's log every half a minute, and at once when a device has a fault. A gang waits
for its slowest rank, so all of them step equally fast; what tells them apart is the time each
takes by itself, from the end of a step to the next backward pass, before it meets the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from weft.node.attempt_log import Journal
from weft.wire.attempt import AttemptSpec
from weft.wire.gpus.health import DeviceWatch
from weft.wire.messages import Counted

EVERY_S = 30.0  # between two lines


class Paces:
    """Seconds that ranks took lately, by what their watchers count."""

    def __init__(self) -> None:
        self._now: dict[int, Counted] = {}
        self._before: dict[int, Counted] = {}

    def take(self, message: Counted) -> None:
        """A watcher's word."""
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
    """Of one attempt; its devices are watched here where no engine on the same machine does."""

    def __init__(self, spec: AttemptSpec, journal: Journal) -> None:
        self._spec, self._journal = spec, journal
        self._watch = DeviceWatch(visible_devices(spec) if spec.part else ())
        self._paces: Paces | None = Paces() if spec.world_size > 1 else None
        self._next = time.monotonic() + EVERY_S
        self._faults: tuple[str, ...] = ()

    def take(self, message: Counted) -> None:
        """A watcher's word."""
        if self._paces is not None:
            self._paces.take(message)

    def forget_ranks(self) -> None:
        """They have changed as they trained: their numbers are not those of devices any more."""
        self._paces = None

    def look(self, *, now: bool = False) -> None:
        """Write what is due; `now` looks at devices although they were just looked at."""
        self._watch.look(now=now)
        faults = tuple(record.fault for record in self._watch.seen)
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
                    (gpu, record.fault, record.notes)
                    for gpu, record in zip(self._numbers(), self._watch.seen, strict=False)
                ],
                counters=[
                    (gpu, record.counters)
                    for gpu, record in zip(self._numbers(), self._watch.seen, strict=False)
                ],
                paces=paces,
            )

    def _numbers(self) -> Sequence[int]:
        """Devices as the plan numbers them; as the driver does where the plan cannot name them."""
        return visible_devices(self._spec) if self._spec.learnt else self._spec.devices

    def _read_paces(self) -> list[tuple[int, int, float, float]]:
        """By rank, with its device."""
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
