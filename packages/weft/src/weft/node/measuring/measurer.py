"""Measures an attempt while it runs: keeps the last minutes in a file, reports from time to time.

The file answers how fast the job was between two times: fresh, and never in the log.
Reports are for everyone and are remembered: the first soon after the first steps, later ones
further apart. A job that reports for itself is left to do so.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from weft.base.messages import Counted
from weft.node.attempt_log import Journal
from weft.node.measuring.outside import HealthLines, Outside, ProcessObservation
from weft.wire.attempt import MEASURED, AttemptSpec
from weft.wire.shared_files import make_file

WRITE_S = 0.2  # at least between two versions of the file
LOOK_S = 1.0  # between two looks from outside
FIRST_S, APART_S, LONGEST_S = 1.5, 5.0, 30.0  # first report after counting began, next, later
BLIND_S = 10.0  # the first report of a job that counts nothing


class Measurer:
    """Measurements of the attempt in `folder`, whose processes are `pids`."""

    def __init__(
        self, folder: Path, spec: AttemptSpec, pids: Callable[[], Collection[int]], journal: Journal
    ) -> None:
        self._file, self._journal = folder / MEASURED, journal
        self.counts = StepCounts(spec.first_rank)
        self._outside, self._seen = Outside(spec, pids), ProcessObservation()
        self._claims = PlausibleReports(self._outside.cpu_time, self._notice)
        self.health = HealthLines(spec, journal)
        self._peak = self._seen_peak = 0.0
        self._began = time.monotonic()
        self._changed = False
        self._written = self._looked = 0.0
        self._next = self._began + BLIND_S
        self._apart = APART_S
        self._counting = False
        self._reported = -1.0
        self.reports_itself = False

    def take(self, message: Counted) -> None:
        if self._claims.allows_steps(message.steps) and self.counts.count_report(
            message, time.time()
        ):
            self._changed = True
            self.health.take(message)
            if not self._counting and self.counts.samples:
                self._counting = True
                self._next, self._apart = time.monotonic() + FIRST_S, APART_S

    def poll(self) -> None:
        """Do what is due; called a few times per second."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._seen, self._changed = self._outside.observe(), True
            self._looked = time.monotonic()
            self._seen_peak = max(self._seen_peak, self._seen.held_gb or 0.0)
            self._peak = max(self._peak, self._seen_peak, self.counts.peak_gb)
            self.health.poll()
        if self._changed and now - self._written >= WRITE_S:
            self._written, self._changed = now, False
            self._write()
        if now >= self._next:
            self._next = now + self._apart
            self._apart = min(self._apart * 2.0, LONGEST_S)
            self._tell()

    def report_totals(self) -> None:
        """The processes have left: their totals, if not reported yet."""
        self.health.poll(now=True)
        if self.counts.samples and self.counts.samples[-1][1] != self._reported:
            self._write()
            self._tell()

    def _tell(self) -> None:
        if not self.reports_itself and (values := self.values()):
            if self.counts.samples:
                self._reported = self.counts.samples[-1][1]
            self._journal.write("report", rank=0, values=values)

    def values(self) -> dict[str, float]:
        """A report of what is known now, by the names that reports have."""
        counts, seen = self.counts, self._seen
        values: dict[str, float | None] = {
            "held_gb": self._held(),
            "mem_gb": self._peak or None,
            "sm": seen.sm,
            "cpus": seen.cpus,
            "read_mb_s": seen.read_mb_s,
            "write_mb_s": seen.write_mb_s,
            "power_w": seen.health.power_w,
            "temp_c": seen.health.temp_c,
            "device_errors": seen.health.errors,
        }
        if samples := counts.samples:
            steps, total = samples[-1][1], counts.total_steps
            values |= {"steps": steps, "total_steps": total}
            values["progress"] = min(steps / total, 1.0) if total else None
            if rate := counts.rate(samples[-1][0] - WINDOW_S):
                values["step_s"] = 1.0 / rate
                part = counts.data_part
                values["data_s"] = None if part is None else part / rate
        return {name: value for name, value in values.items() if value is not None}

    def believe(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the report of a rank without what cannot be true."""
        return self._claims.believe(values, self._seen_peak or self._outside.resident_gb())

    def _notice(self, level: str, text: str) -> None:
        self._journal.write("notice", rank=0, level=level, text=text)

    def _held(self) -> float | None:
        """Return memory by the driver, which counts all; by the framework where it is silent."""
        if self._seen.held_gb is not None:
            return self._seen.held_gb
        return self.counts.held_gb or None

    def _write(self) -> None:
        """All of it or nothing, and not worth waiting for the disk."""
        counts, seen = self.counts, self._seen
        body = {
            "at": time.time(),
            "samples": [[round(at, 4), steps] for at, steps in counts.samples],
            "unit": counts.unit,
            "total_steps": counts.total_steps,
            "data_part": counts.data_part,
            "held_gb": self._held(),
            "peak_gb": self._peak or None,
            "sm": seen.sm,
            "cpus": seen.cpus,
            "read_mb_s": seen.read_mb_s,
            "write_mb_s": seen.write_mb_s,
        }
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        with suppress(OSError):  # a full disk: the next one may fit
            handle = make_file(fresh, os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(handle, "w") as out:
                json.dump(body, out, separators=(",", ":"))
            fresh.replace(self._file)


# ---- Steps as watchers count them in the processes of an attempt, joined to one series
#
# What comes from a process is not to be trusted: what cannot be right is left out.


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


class StepCounts:
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

    def count_report(self, message: Counted, now: float) -> bool:
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
        """Steps per second since a time; None where fewer than two samples are."""
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


LEAST_CPU_S = 5e-6  # of one step: Python alone takes as long for the smallest optimizer
UNSEEN_CPU_S = 2.0  # that a process may have had since it was last looked at
LESS = 0.5  # of the memory seen: less than that is not a matter of when it was looked at
PACE = ("steps", "step_s", "samples", "progress", "total_steps", "data_s")  # of the same count
SPEED = ("step_s", "data_s")
WARNING = "warning"


class PlausibleReports:
    """The claims of one attempt; what cannot be true is said once in a notice, and left out.

    Programs tell steps, speeds and memory, and from these come predictions, promises and
    neighbours. A step takes some CPU time, so there are no more of them than the processes had time
    for; and a program has at least the memory that the driver, or the kernel, saw it take.
    """

    def __init__(self, cpu_time: Callable[[], float], notice: Callable[[str, str], None]) -> None:
        self._cpu_time, self._notice = cpu_time, notice
        self._said: set[str] = set()

    def allows_steps(self, steps: float) -> bool:
        """Return True if its processes had the CPU time for that many steps."""
        cpu_s = 0.0 if steps * LEAST_CPU_S <= UNSEEN_CPU_S else self._cpu_time()
        possible = steps * LEAST_CPU_S <= cpu_s + UNSEEN_CPU_S
        if not possible:
            took = f"in {cpu_s:.1f} s of CPU time"
            self._say("steps", f"its program counts {steps:.3g} steps {took}: not believed")
        return possible

    def believe(self, values: Mapping[str, float], seen_gb: float) -> dict[str, float]:
        """A report without what cannot be true; `seen_gb` is the memory that was seen."""
        believed = dict(values)
        lies = not self.allows_steps(max(values.get("steps", 0.0), 0.0))
        too_fast = values.get("step_s", 1.0) < LEAST_CPU_S  # 0 where it is not known yet
        for name in PACE if lies else SPEED if too_fast else ():
            believed.pop(name, None)
        claimed = values.get("mem_gb")
        if claimed is not None and not claimed >= seen_gb:
            believed["mem_gb"] = seen_gb
            if not claimed >= seen_gb * LESS:
                text = f"its program reports {claimed:.3g} GB of memory and has {seen_gb:.3g} GB"
                self._say("memory", f"{text}: not believed")
        return believed

    def _say(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            self._notice(WARNING, text)
