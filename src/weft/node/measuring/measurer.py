"""Measures an attempt while it runs: keeps the last minutes in a file, reports from time to time.

The file answers how fast the job was between two times: fresh, and never in the log.
Reports are for everybody and are remembered: the first soon after the first steps, later ones
further apart. A job that reports for itself is left to do so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from weft.node.attempt_log import Journal
from weft.node.measuring.counts import WINDOW_S, Counts
from weft.node.measuring.health import HealthLines
from weft.node.measuring.outside import Observation, Outside
from weft.wire.attempt import MEASURED, AttemptSpec
from weft.wire.messages import Counted

WRITE_S = 0.2  # at least between two versions of the file
LOOK_S = 1.0  # between two looks from outside
FIRST_S, APART_S, LONGEST_S = 1.5, 5.0, 30.0  # first report after counting began, next, later
BLIND_S = 10.0  # the first report of a job that counts nothing


class Measurer:
    """What is known of the attempt in `folder`, whose processes are `pids`."""

    def __init__(
        self,
        folder: Path,
        spec: AttemptSpec,
        pids: Callable[[], Collection[int]],
        journal: Journal,
    ) -> None:
        self._file, self._journal = folder / MEASURED, journal
        self.counts = Counts(spec.first_rank)
        self._outside, self._seen = Outside(spec, pids), Observation()
        self.health = HealthLines(spec, journal)
        self._peak = 0.0
        self._began = time.monotonic()
        self._changed = False
        self._written = self._looked = 0.0
        self._next = self._began + BLIND_S
        self._apart = APART_S
        self._counting = False
        self._reported = -1.0
        self.reports_itself = False

    def take(self, message: Counted) -> None:
        """A watcher's word."""
        if self.counts.take(message, time.time()):
            self._changed = True
            self.health.take(message)
            if not self._counting and self.counts.samples:
                self._counting = True
                self._next, self._apart = time.monotonic() + FIRST_S, APART_S

    def look(self) -> None:
        """Do what is due; called a few times a second."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            self._seen, self._changed = self._outside.look(), True
            self._peak = max(self._peak, self._seen.held_gb or 0.0, self.counts.peak_gb)
            self.health.look()
        if self._changed and now - self._written >= WRITE_S:
            self._written, self._changed = now, False
            self._write()
        if now >= self._next:
            self._next = now + self._apart
            self._apart = min(self._apart * 2.0, LONGEST_S)
            self._tell()

    def end(self) -> None:
        """The processes have left: what they came to, if nobody knows yet."""
        self.health.look(now=True)
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

    def _held(self) -> float | None:
        """By the driver, which counts all; by the framework where the driver is silent."""
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
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w") as out:
                json.dump(body, out, separators=(",", ":"))
            fresh.replace(self._file)
