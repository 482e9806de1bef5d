"""Begin and end of stages on the device, measured without making training wait.

On the CPU a moment is a number. On a GPU launches return early, so a moment is an event on the
current stream; intervals are read when the device has passed them, an iteration or so later.
"""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import torch

WINDOW = 50
MOST_OPEN = 64  # intervals kept unread: reading many at once is cheaper than each in its step


class DeviceClock(Protocol):
    """Moments on a device."""

    def now(self) -> Any: ...

    def between(self, start: Any, end: Any) -> float | None:
        """Seconds from one moment to another; None while the device has not come to the end."""
        ...

    def call_when_done(self, then: Callable[[], None]) -> None:
        """Call `then` once the device has done everything asked of it so far."""
        ...

    def close(self) -> None:
        """End the stopwatch."""
        ...


class CpuDeviceClock:
    """CPU work is done when the call returns."""

    now = staticmethod(time.perf_counter)

    def between(self, start: float, end: float) -> float:
        return end - start

    def call_when_done(self, then: Callable[[], None]) -> None:
        then()

    def close(self) -> None:
        """Nothing to do."""


class CudaClock:
    """Moments are events; a thread waits for the device if someone needs the result."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pending: queue.SimpleQueue[tuple[Any, Callable[[], None]] | None] = (
            queue.SimpleQueue()
        )
        self._watcher = threading.Thread(target=self._watch, name="weft-fence", daemon=True)
        self._watcher.start()

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, start: Any, end: Any) -> float | None:
        return float(start.elapsed_time(end)) / 1000.0 if end.query() else None

    def call_when_done(self, then: Callable[[], None]) -> None:
        """From the watching thread, after what the current stream holds."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._pending.put((event, then))

    def close(self) -> None:
        """End the watching thread after the last event it waits for."""
        self._pending.put(None)
        self._watcher.join(timeout=5.0)

    def _watch(self) -> None:
        while (item := self._pending.get()) is not None:
            event, then = item
            event.synchronize()
            then()


def make_clock(device: torch.device) -> DeviceClock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else CpuDeviceClock()


class Stopwatch:
    """Medians of named intervals over the last fifty, read when they are over."""

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock
        self._seen: dict[str, deque[float]] = {}
        self._open: deque[tuple[str, Any, Any]] = deque()

    def add(self, name: str, seconds: float) -> None:
        """An interval that is known already."""
        if name not in self._seen:
            self._seen[name] = deque(maxlen=WINDOW)
        self._seen[name].append(seconds)

    def add_span(self, name: str, start: Any, end: Any) -> None:
        """An interval between two moments of the clock."""
        self._open.append((name, start, end))
        if len(self._open) > MOST_OPEN:
            self._settle()

    def median(self, name: str) -> float:
        """Return the median of what was seen; 0 if nothing was."""
        self._settle()
        seen = self._seen.get(name)
        return statistics.median(seen) if seen else 0.0

    def count(self, name: str) -> int:
        """Return the number of measurements in the window."""
        self._settle()
        return len(self._seen.get(name, ()))

    def clear(self) -> None:
        """Forget: another batch is another measurement."""
        self._seen.clear()
        self._open.clear()

    def _settle(self) -> None:
        while self._open:
            name, start, end = self._open[0]
            seconds = self._clock.between(start, end)
            if seconds is None:
                return
            self._open.popleft()
            self.add(name, seconds)
