"""Measurements of agents about their attempts, read from where they keep them.

The job may have replaced the file: what cannot be right is as good as not measured.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from weft.base.errors import WireError
from weft.core.knowledge.measured import NOT_MEASURED, MeasuredAttempt, MemoryWait
from weft.wire.attempt import MEASURED, read_json
from weft.wire.memory_waits import read_guarded, read_waits
from weft.wire.processes import descendants, skip_gone

log = logging.getLogger(__name__)

UNGUARDED_GB = 1.0  # more than a context: any program that is guarded has said so by then


def read_measured(folder: Path) -> MeasuredAttempt:
    """Read the measurements of the attempt, or the part of one, in `folder`."""
    try:
        values = read_json(folder / MEASURED)
        return NOT_MEASURED if values is None else MeasuredAttempt.parse(values)
    except (OSError, WireError, ValueError) as error:
        log.debug("attempt=%s is not measured: %s", folder, error)
        return NOT_MEASURED


def add_host_memory(measured: MeasuredAttempt, pids: Collection[int]) -> MeasuredAttempt:
    """Measurements with the host memory of processes and their children as that of a device."""
    held = peak = 0.0
    for pid in {*pids, *(child for parent in pids for child in descendants(parent))}:
        with skip_gone():
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            )
            held += int(fields.get("VmRSS", "0 kB").split()[0]) * 1024 / 1e9
            peak += int(fields.get("VmHWM", "0 kB").split()[0]) * 1024 / 1e9
    return replace(measured, held_gb=held or None, peak_gb=peak or None)


def add_wait(measured: MeasuredAttempt, state: Path, job: str, attempt: int) -> MeasuredAttempt:
    """Measurements with the device memory that an attempt waits for, as the book below `state` has.

    Of several processes the one that waits longest comes first. One that holds much, and of which
    the book has never heard, is not guarded.
    """
    if (measured.held_gb or 0.0) >= UNGUARDED_GB and (guarded := read_guarded(state)) is not None:
        measured = replace(measured, unguarded=(job, attempt) not in guarded)
    rows = [row for row in read_waits(state) if (row.job, row.attempt) == (job, attempt)]
    if not rows:
        return measured
    first, *others = (
        MemoryWait(row.gb, row.since, row.held, row.away, row.missing_gb)
        for row in sorted(rows, key=lambda row: row.since)
    )
    return replace(measured, waits=replace(first, others=tuple(others)))


def join_measured(parts: Iterable[MeasuredAttempt]) -> MeasuredAttempt:
    """One attempt from its parts: steps of the first, memory of the largest, the host's summed."""
    every = list(parts)
    if len(every) < 2:
        return every[0] if every else NOT_MEASURED
    return replace(
        every[0],
        held_gb=max((part.held_gb for part in every if part.held_gb is not None), default=None),
        peak_gb=max((part.peak_gb for part in every if part.peak_gb is not None), default=None),
        cpus=_sum(part.cpus for part in every),
        read_mb_s=_sum(part.read_mb_s for part in every),
        write_mb_s=_sum(part.write_mb_s for part in every),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
