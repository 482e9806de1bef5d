"""Freezes and thaws all processes of an attempt at once, those that are being born included.

By the control group of its ranks where there is one, else by SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from weft.wire.cgroups import freeze_group, is_group_frozen
from weft.wire.processes import is_frozen, is_stopping

PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.02

Find = Callable[[], Collection[int]]  # the processes that are meant


def freeze_tree(find: Find, group: Path | None, within_s: float) -> bool:
    """Nobody of them runs on return; False if that could not be had in time."""
    if group is not None and freeze_group(group, frozen=True):
        return _until(lambda: is_group_frozen(group), within_s)
    calm = 0

    def all_stopped() -> bool:
        # A process that was stopped after we listed them may have had a child by then: nobody is
        # left out once two lists in a row show only stopped ones.
        nonlocal calm
        running = [pid for pid in find() if not is_frozen(pid) and not is_stopping(pid)]
        _signal(running, signal.SIGSTOP)
        calm = 0 if running else calm + 1
        return calm > 1

    return _until(all_stopped, within_s)


def thaw_tree(find: Find, group: Path | None, within_s: float) -> bool:
    """All of them go on; False if one could not be woken in time."""
    if group is not None:
        freeze_group(group, frozen=False)

    def none_stopped() -> bool:
        stopped = [pid for pid in find() if is_frozen(pid) or is_stopping(pid)]
        _signal(stopped, signal.SIGCONT)
        still = group is not None and is_group_frozen(group)
        return not stopped and not still

    return _until(none_stopped, within_s)


def _signal(pids: Collection[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _until(done: Callable[[], bool], within_s: float) -> bool:
    until, pause = time.monotonic() + within_s, PAUSE_S
    while not done():
        if time.monotonic() > until:
            return False
        time.sleep(pause)
        pause = min(2.0 * pause, LONGEST_PAUSE_S)
    return True
