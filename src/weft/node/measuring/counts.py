"""Steps as watchers count them in the processes of an attempt, joined to one series.

What comes from a process is not to be trusted: what cannot be right is left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite

from weft.wire.messages import Counted

UNITS = frozenset(("step", "graph", "batch", "bar"))
FINE_S, COARSE_S = 60.0, 600.0  # how long every sample is kept, and how long a few of them
SHORTEST_S, LONG_S = 0.2, 4.0  # between two samples that are kept: fine ones, and the few
MOST_PROCESSES = 64
MOST_STEPS, MOST_PER_S, MOST_GB = 1e15, 1e7, 1e6
WINDOW_S = 10.0  # what "lately" means

Sample = tuple[float, float]


@dataclass(slots=True)
class Process:
    """One process that trains; `before` are steps of programs that had its number earlier."""

    at: float = 0.0
    steps: float = 0.0
    before: float = 0.0
    total: float = 0.0
    held_gb: float = 0.0
    peak_gb: float = 0.0

    @property
    def done(self) -> float:
        """Steps of all programs that this process was."""
        return self.before + self.steps


class Counts:
    """The attempt's steps; those of its first rank where it has several.

    Processes that are no ranks of a gang train side by side: their steps are added up.
    """

    def __init__(self, first_rank: int) -> None:
        self._first = first_rank
        self._processes: dict[int, Process] = {}
        self._fine: deque[Sample] = deque()
        self._coarse: deque[Sample] = deque()
        self._waits: deque[tuple[float, float]] = deque()
        self.unit = ""
        self.dropped = 0

    def take(self, message: Counted, now: float) -> bool:
        """A watcher's word; whether anything of it is new. `now` is the agent's Unix time."""
        if not _is_sound(message):
            self.dropped += 1
            return False
        known = self._processes.get(message.pid)
        if known is None:
            if len(self._processes) >= MOST_PROCESSES:
                self.dropped += 1
                return False
            known = self._processes[message.pid] = Process()
        known.held_gb = message.held_gb
        known.peak_gb = max(known.peak_gb, message.peak_gb)
        if message.rank != self._first:
            return True
        return self._advance(known, message, min(message.at, now))

    def _advance(self, process: Process, message: Counted, at: float) -> bool:
        if message.steps < process.steps:  # another program in the same process
            process.before, process.steps = process.done, 0.0
        elif at <= process.at:
            return False
        gained = message.steps - process.steps
        if process.at and gained > 1.0 + MOST_PER_S * max(at - process.at, 0.0):
            self.dropped += 1
            return False
        if self.unit not in ("", message.unit):  # what was counted before was not the training
            self._fine.clear()
            self._coarse.clear()
            self._waits.clear()
            process.before = 0.0
        process.at, process.steps = at, message.steps
        process.total = message.total if message.total >= message.steps else 0.0
        self.unit = message.unit
        done = sum(counted.done for counted in self._processes.values())
        if self._fine and at <= self._fine[-1][0]:
            self._fine[-1] = (self._fine[-1][0], done)
        else:
            self._add((at, done))
        if message.data_s >= 0.0:
            self._waits.append((at, message.data_s))
        return True

    def _add(self, sample: Sample) -> None:
        fine, coarse, at = self._fine, self._coarse, sample[0]
        if len(fine) > 1 and at - fine[-2][0] < SHORTEST_S:
            fine[-1] = sample  # the newest always counts
        else:
            fine.append(sample)
        while at - fine[0][0] > FINE_S:
            old = fine.popleft()
            if not coarse or old[0] - coarse[-1][0] >= LONG_S:
                coarse.append(old)
        while coarse and at - coarse[0][0] > COARSE_S:
            coarse.popleft()
        while len(self._waits) > 1 and at - self._waits[0][0] > WINDOW_S:
            self._waits.popleft()

    @property
    def samples(self) -> list[Sample]:
        """Times and steps done by then, oldest first."""
        return [*self._coarse, *self._fine]

    @property
    def total_steps(self) -> float | None:
        """Steps of the whole training; None where a process does not know."""
        trains = [process for process in self._processes.values() if process.at]
        if not trains or not all(train.total for train in trains):
            return None
        return sum(train.before + train.total for train in trains)

    @property
    def data_part(self) -> float | None:
        """Part of the time lately in which training waited for data; None where nothing tells."""
        if len(self._waits) < 2 or len(self._processes) > 1:
            return None
        (began, before), (ended, after) = self._waits[0], self._waits[-1]
        took = ended - began
        return min(max((after - before) / took, 0.0), 1.0) if took > 0.0 else None

    def rate(self, since: float) -> float | None:
        """Steps a second since a time; None where fewer than two samples are."""
        recent = [sample for sample in self._fine if sample[0] >= since]
        if len(recent) < 2:
            return None
        (began, before), (ended, after) = recent[0], recent[-1]
        return (after - before) / (ended - began)

    @property
    def held_gb(self) -> float:
        """Device memory that frameworks have now, of the process that has most."""
        return max((process.held_gb for process in self._processes.values()), default=0.0)

    @property
    def peak_gb(self) -> float:
        """The most that one ever had."""
        return max((process.peak_gb for process in self._processes.values()), default=0.0)


def _is_sound(message: Counted) -> bool:
    numbers = (message.at, message.steps, message.total, message.data_s)
    own = (message.own_s, message.own_steps)
    memory = (message.held_gb, message.peak_gb)
    return (
        message.unit in UNITS
        and all(isfinite(number) and abs(number) <= MOST_STEPS for number in (*numbers, *own))
        and all(isfinite(gb) and 0.0 <= gb <= MOST_GB for gb in memory)
        and message.steps >= 0.0
        and message.at > 0.0
    )
