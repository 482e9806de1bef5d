"""How long a job may run, over all its attempts on this machine."""

from __future__ import annotations

import time
from pathlib import Path

from weft.wire.attempt import read_json, write_whole

RAN = "ran.json"  # beside a job's attempts: how long they took together


class TimeLimit:
    """Counts while an attempt runs. A limit of 0 is none; the warning comes `warn_s` before it."""

    def __init__(self, job_folder: Path, limit_s: float, warn_s: float) -> None:
        self._file = job_folder / RAN
        self._limit_s = limit_s or float("inf")
        self._warn_at = self._limit_s - warn_s if warn_s else float("inf")
        self._before_s = float((read_json(self._file) or {}).get("seconds", 0.0))
        self._began = time.monotonic()
        self._over = False
        self._stood: float | None = None  # since when it is asleep

    def stand(self, *, still: bool) -> None:
        """Whether its processes are asleep: that time does not count."""
        now = time.monotonic()
        if still and self._stood is None:
            self._stood = now
        elif not still and self._stood is not None:
            self._began += now - self._stood
            self._stood = None

    @property
    def ran_s(self) -> float:
        """Seconds of this and earlier attempts."""
        until = time.monotonic() if self._stood is None else self._stood
        return self._before_s + until - self._began

    def warns(self) -> bool:
        """Whether to warn its processes now; true once."""
        if self.ran_s < self._warn_at:
            return False
        self._warn_at = float("inf")
        return True

    def ends(self) -> bool:
        """Whether its time is over; true once."""
        if self._over or self.ran_s < self._limit_s:
            return False
        self._over = True
        return True

    @property
    def passed(self) -> bool:
        """Whether its time was over while it ran."""
        return self._over

    def keep(self) -> None:
        """The attempt has ended: remember what it took."""
        if self._limit_s < float("inf"):
            write_whole(self._file, {"seconds": self.ran_s})
