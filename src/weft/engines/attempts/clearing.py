"""Ends every process of an attempt from outside, however it hid, and says which will not go."""

from __future__ import annotations

import os
import time
from pathlib import Path

from weft.frozen import frozen
from weft.wire.attempt import EVENTS, TAG
from weft.wire.cgroups import kill_group, members, remove_group
from weft.wire.processes import alive, descendants, find_holding, find_tagged, kill_all, start_time

PAUSE_S = 0.02

Process = tuple[int, int]  # pid and start time


@frozen
class Footprint:
    """All that tells an attempt's processes from others.

    `lock` is the file that they inherit open; None where another attempt of the job may hold it.
    """

    folder: Path
    agent: Process | None = None
    ranks: tuple[Process, ...] = ()
    lock: Path | None = None
    group: Path | None = None


def end_all(marks: Footprint, within_s: float) -> list[int]:
    """Kill until none is left or the time is up; those that are left."""
    until = time.monotonic() + within_s
    while True:
        left = processes_of(marks)
        if not left:
            if marks.group is not None:
                remove_group(marks.group)
            return []
        if marks.group is not None:
            kill_group(marks.group)
        kill_all(left)
        if time.monotonic() > until:
            return sorted(left)
        time.sleep(PAUSE_S)


def processes_of(marks: Footprint) -> set[int]:
    """Every process of the attempt that lives."""
    roots = [
        process
        for process in (marks.agent, *marks.ranks)
        if process is not None and alive(*process)
    ]
    pids = {pid for pid, _ in roots}
    for pid, _ in roots:
        # An agent adopts orphans, so that no process escapes it while it lives.
        pids |= set(descendants(pid))
    pids |= set(find_tagged(TAG, str(marks.folder)))
    # A rank that its agent has forked but that has not begun yet has no mark of its own.
    pids |= set(find_holding(marks.folder / EVENTS, writing=True))
    if marks.lock is not None:
        pids |= set(find_holding(marks.lock))
    if marks.group is not None:
        pids |= set(members(marks.group))
    pids.discard(os.getpid())
    return {pid for pid in pids if start_time(pid) is not None}
