"""The count of steps in this process, and the line to the agent: cheap, and never in the way.

No thread: whatever moves the count also sends it, a few times per second at most, on a socket that
never blocks. What does not go out at once is forgotten; the next message tells all again.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any, Callable

EVERY_S = 0.25  # at least between two messages
MEMORY_S = 1.0  # at least between two looks at the framework's memory
AGAIN_S = 5.0  # at least between two attempts to connect
MOST_QUICK = 8  # steps of an optimizer that are counted before anything else is done
QUICK_S = 0.05  # and at most about so long
MANY_REPLAYS = 64  # of CUDA graphs since the last step of an optimizer: they are the steps

COUNTER: Counter | None = None
_complained = False


def begin() -> None:
    """Start to count in this process, and afresh in those that it forks."""
    global COUNTER
    COUNTER = Counter()
    os.register_at_fork(after_in_child=guarded(COUNTER.begin_again))
    atexit.register(guarded(COUNTER.finish))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, without its errors: the first is said in one line."""

    def run(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            complain(error)
            return None

    return run


def complain(error: BaseException) -> None:
    """Once, in the job's own output."""
    global _complained
    if not _complained:
        _complained = True
        with suppress(Exception):  # its output may be closed
            sys.stderr.write(f"weft: this process is only partly watched: {error!r}\n")


class Counter:
    """Steps, when the last was done, and what is known beside.

    `totals` are functions that tell the steps of the whole training, None where they cannot; the
    first that can is believed. `memory` tells present and peak device memory in GB, `stepped` is
    called after steps of an optimizer.
    """

    def __init__(self) -> None:
        self.totals: list[Callable[[float], float | None]] = []
        self.memory: Callable[[], Any] = lambda: (0.0, 0.0)
        self.stepped: Callable[[], None] = lambda: None
        self._socket: socket.socket | None = None
        self.quick = [0, 1]  # steps that are not counted yet, and how many there may be
        self.begin_again()

    def begin_again(self) -> None:
        """Nothing has been counted in this process."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self.steps, self.unit, self.at = 0, "", 0.0
        self.data_s, self.loads = 0.0, False
        self.own_s, self.own_steps = 0.0, 0
        self._replays, self._next, self._connect_at, self._memory_at = 0, 0.0, 0.0, 0.0
        self._held_gb = self._peak_gb = 0.0
        self._sent, self._total_known = -1, 0.0
        self.quick[:] = 0, 1

    @property
    def done(self) -> float:
        """Steps so far, with those that are not counted yet."""
        return self.steps + self.quick[0]

    def step(self) -> None:
        """An optimizer has stepped, as often as `quick` counted."""
        steps, self.quick[0] = self.quick[0], 0
        if self.unit != "step":
            if self.unit == "graph" and self._replays > 1:
                self._replays = 0  # a single step between replays is a part of capturing
                return
            self._begin_unit("step")
        self._replays = 0
        before = self.at
        self._add(steps)
        each_s = max((self.at - before) / steps, 1e-6)
        self.quick[1] = min(max(int(QUICK_S / each_s), 1), MOST_QUICK)
        self.stepped()

    def replay(self) -> None:
        """A CUDA graph was replayed: a step itself, where no optimizer steps beside."""
        if self.unit == "graph":
            self._replays += 1
            self._add(1)
            return
        if self.quick[0]:
            self.step()
        self._replays += 1
        if self._replays > MANY_REPLAYS:
            self._begin_unit("graph")

    def batch(self) -> None:
        """Keras has trained on a batch."""
        if self.unit in ("", "bar", "batch"):
            if self.unit != "batch":
                self._begin_unit("batch")
            self._add(1)

    def bar(self, moved: float) -> None:
        """A progress bar moved, in a process where nothing else is counted."""
        if self.unit in ("", "bar"):
            if not self.unit:
                self._begin_unit("bar")
            self._add(moved)

    def waited(self, seconds: float) -> None:
        """For data."""
        self.loads = True
        self.data_s += seconds

    def worked(self, seconds: float) -> None:
        """A step took so long before its backward pass: before it waits for other ranks."""
        self.own_s += seconds
        self.own_steps += 1

    def finish(self) -> None:
        """The program is about to end: the last word."""
        if self.quick[0]:
            self.step()
        if self.at and self.steps != self._sent:
            self._tell(self.at)

    def _begin_unit(self, unit: str) -> None:
        self.unit, self.steps, self._total_known = unit, 0, 0.0

    def _add(self, steps: float) -> None:
        now = time.time()
        self.steps += steps  # type: ignore[assignment]
        self.at = now
        if now >= self._next:
            self._next = now + EVERY_S
            try:
                self._tell(now)
            except Exception as error:
                self._next = now + 60.0
                complain(error)

    def _tell(self, now: float) -> None:
        line = self._connected(now)
        if line is None:
            return
        if now >= self._memory_at:
            self._memory_at = now + MEMORY_S
            self._held_gb, self._peak_gb = self.memory()
        body = {
            "type": "counted",
            "job": os.environ.get("WEFT_JOB", ""),
            "attempt": int(os.environ.get("WEFT_ATTEMPT", "0")),
            "rank": int(os.environ.get("RANK") or 0),
            "pid": os.getpid(),
            "at": self.at,
            "steps": self.steps,
            "unit": self.unit,
            "total": self.look_up_total(),
            "data_s": self.data_s if self.loads else -1.0,
            "held_gb": self._held_gb,
            "peak_gb": self._peak_gb,
            "own_s": self.own_s,
            "own_steps": self.own_steps,
        }
        message = json.dumps(body).encode() + b"\n"
        try:
            whole = line.send(message) == len(message)
        except BlockingIOError:
            return  # no reader yet; the next message repeats this and adds to it
        except OSError:
            whole = False
        if whole:
            self._sent = self.steps
        else:
            line.close()
            self._socket = None

    def look_up_total(self) -> float:
        """Steps of the whole training, 0 if unknown; the last known value is kept."""
        for total in self.totals:
            try:
                steps = total(self.steps)
            except Exception as error:
                complain(error)
                continue
            if steps is not None and self.steps <= steps < 1e15:
                self._total_known = float(steps)
                break
        return self._total_known if self._total_known >= self.steps else 0.0

    def _connected(self, now: float) -> socket.socket | None:
        if self._socket is None and now >= self._connect_at:
            self._connect_at = now + AGAIN_S
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            line.setblocking(False)
            try:
                line.connect(os.environ["WEFT_AGENT"])
            except OSError:
                line.close()
            else:
                self._socket = line
        return self._socket
