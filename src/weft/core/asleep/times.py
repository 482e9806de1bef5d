"""How long it takes to put attempts to sleep and to wake them, as measured, by job and node."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from weft.core.model.job import Job
from weft.core.stops import Rung

KEPT = 20  # of the last measurements of each
DOWN, UP = "down", "up"
# Seconds, and seconds per GB of device memory, where nothing was measured: one H200, driver 580.
FREEZE_S = 0.02
SUSPEND_S, SUSPEND_GB_S = {DOWN: 0.3, UP: 0.2}, {DOWN: 0.6, UP: 0.2}
LEAST_GB = 0.5  # below it the seconds say nothing of a GB


class StopTimes:
    """Seconds by rung, direction, node and program: the last of each."""

    def __init__(self) -> None:
        self._seen: dict[str, list[list[float]]] = {}

    def learn(self, job: Job, node: str, rung: Rung, way: str, gb: float, seconds: float) -> None:
        """An attempt with `gb` on its devices took so long on a node, `down` or `up`."""
        for key in (f"{rung}/{way}/{node}/{program_of(job)}", f"{rung}/{way}/{node}"):
            seen = self._seen.setdefault(key, [])
            seen.append([gb, seconds])
            del seen[:-KEPT]

    def seconds(self, job: Job, node: str, rung: Rung, way: str, gb: float) -> float:
        """What to expect of a job, by what it or others took there."""
        own = self._seen.get(f"{rung}/{way}/{node}/{program_of(job)}")
        seen = own or self._seen.get(f"{rung}/{way}/{node}")
        if rung is Rung.FREEZE:
            return median(s for _, s in seen) if seen else FREEZE_S
        large = [(size, s) for size, s in seen or () if size >= LEAST_GB]
        if not large:
            return SUSPEND_S[way] + SUSPEND_GB_S[way] * gb
        return median(s / size for size, s in large) * max(gb, LEAST_GB)

    def save(self) -> dict[str, Any]:
        """All that was measured, as values that JSON has."""
        return {key: [list(measured) for measured in seen] for key, seen in self._seen.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore what `save` returned."""
        self._seen = {key: [list(measured) for measured in seen] for key, seen in saved.items()}


def program_of(job: Job) -> str:
    """What a job's measurements are kept under: its model, or itself where it names none."""
    return job.model or f"job {job.id}"
