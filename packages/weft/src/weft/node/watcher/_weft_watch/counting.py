"""The count of steps in this process, and the line to the agent: cheap, and never in the way.

No thread: whatever moves the count also sends it, a few times per second at most, and never waits.
What does not go out at once is forgotten; the next message tells all again.
"""

from __future__ import annotations

import atexit
import os
import time
from os import environ, getpid

from .guard import guarded
from .line import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

EVERY_S = 0.25  # at least between two messages
MEMORY_S = 1.0  # at least between two looks at the framework's memory
AGAIN_S = 5.0  # until the next message where there was no agent
MOST_QUICK = 8  # steps of an optimizer that are counted before anything else is done
QUICK_S = 0.05  # and at most about so long
MANY_REPLAYS = 64  # of CUDA graphs since the last step of an optimizer: they are the steps
MOST_TOTAL = 1e15

# Unix time, and seconds. Libraries that set the time in tests look for names of modules.
CLOCKS = (time.time, time.perf_counter)

COUNTER: Counter | None = None


def begin() -> None:
    """Start to count in this process, and afresh in those that it forks."""
    global COUNTER
    COUNTER = Counter()
    os.register_at_fork(after_in_child=guarded(COUNTER.begin_again))
    atexit.register(guarded(COUNTER.finish))


class Counter:
    """Steps, when the last was done, and what is known beside.

    `totals` are functions that tell the steps of the whole training, None where they cannot; the
    first that can is believed. `memory` tells present and peak device memory in GB, `stepped` is
    called after steps of an optimizer, `more` when there is time to send more, and at the end.
    """

    def __init__(self) -> None:
        self._clock = CLOCKS[0]
        self._agent, self._job = environ.get("WEFT_AGENT", ""), environ.get("WEFT_JOB", "")
        self._attempt = whole(environ.get("WEFT_ATTEMPT"))
        self.totals: list[Callable[[float], float | None]] = []
        self.memory: Callable[[], Any] = lambda: (0.0, 0.0)
        self.stepped: Callable[[], None] = lambda: None
        self.more: Callable[..., None] = lambda *_: None
        self.quick = [0, 1]  # steps that are not counted yet, and how many there may be
        self.begin_again()

    def begin_again(self) -> None:
        """Begin from zero, as in a process that has counted nothing."""
        self.steps, self.unit, self.at = 0, "", 0.0
        self.data_s, self.loads = 0.0, False
        self.own_s, self.own_steps = 0.0, 0
        self._replays, self._next, self._memory_at = 0, 0.0, 0.0
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
        """Count seconds of waiting for data."""
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
        guarded(self.more)(True)

    def _begin_unit(self, unit: str) -> None:
        self.unit, self.steps, self._total_known = unit, 0, 0.0

    def _add(self, steps: float) -> None:
        now = self._clock()
        self.steps += steps  # type: ignore[assignment]
        self.at = now
        if now >= self._next or now < self._next - AGAIN_S:  # a clock may be set back
            self._next = now + EVERY_S
            guarded(self._tell)(now)
            guarded(self.more)()

    def _tell(self, now: float) -> None:
        if now >= self._memory_at or now < self._memory_at - MEMORY_S:
            self._memory_at = now + MEMORY_S
            self._held_gb, self._peak_gb = self.memory()
        line = as_json(
            type="counted",
            job=self._job,
            attempt=self._attempt,
            rank=whole(environ.get("RANK")),
            pid=getpid(),
            at=self.at,
            steps=self.steps,
            unit=self.unit,
            total=self.look_up_total(),
            data_s=self.data_s if self.loads else -1.0,
            held_gb=self._held_gb,
            peak_gb=self._peak_gb,
            own_s=self.own_s,
            own_steps=self.own_steps,
        )
        if send(self._agent, line):
            self._sent = self.steps
        else:
            self._next = now + AGAIN_S

    def look_up_total(self) -> float:
        """Steps of the whole training, 0 if unknown; the last known value is kept."""
        for total in self.totals:
            steps = guarded(total)(self.steps)
            if steps is not None and self.steps <= steps < MOST_TOTAL:
                self._total_known = float(steps)
                break
        return self._total_known if self._total_known >= self.steps else 0.0


def whole(text: object) -> int:
    """A number that a variable holds; 0 for all else."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 10 else 0


def as_json(**fields: Any) -> bytes:
    """One line of plain texts and numbers; `json` is left to be imported by the program."""
    parts = [f'"{name}":{_value(value)}' for name, value in fields.items()]
    return ("{" + ",".join(parts) + "}\n").encode(errors="replace")


def _value(value: Any) -> str:
    return as_text(value) if isinstance(value, str) else repr(value)


def as_text(value: str) -> str:
    """A text as JSON has it."""
    signs = (sign if sign >= " " and sign not in '"\\' else f"\\u{ord(sign):04x}" for sign in value)
    return '"' + "".join(signs) + '"'
