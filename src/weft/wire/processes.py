"""Processes by who they are, not by a number that may be given to another: Linux only."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def start_time(pid: int) -> int | None:
    """When a process began, in ticks since boot; None if it is gone or only a zombie."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    return None if state in "ZX" else int(rest[18])


def alive(pid: int, began: int) -> bool:
    """Whether the process that began then still runs."""
    return start_time(pid) == began


def tagged(name: str, value: str) -> Iterator[int]:
    """Processes that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    for entry in os.scandir(PROC):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # gone meanwhile, or another user's
            if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                pid = int(entry.name)
                if start_time(pid) is not None:
                    yield pid


def kill_tagged(name: str, value: str, spare: int = 0) -> int:
    """Kill every such process but `spare`; how many there were."""
    found = [pid for pid in tagged(name, value) if pid != spare]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def resident_gb(pid: int) -> float:
    """Memory of one process; 0 when it is gone."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 1e9


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """From here on this process ends when the thread that started it does."""
    _prctl(PR_SET_PDEATHSIG, how)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """From here on no program gives this process or its children more rights than it has."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def allow_own_proc() -> None:
    """Let this process read its own entries in /proc, which a change of user takes from it."""
    _prctl(PR_SET_DUMPABLE, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
