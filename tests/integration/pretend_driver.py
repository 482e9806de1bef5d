"""Stands in for the device's driver where there is none: notes who is suspended, moves nothing.

    pretend_driver.py ROOM suspend|restore PID...

Python processes count as users of a device. It refuses what a real driver would: to suspend a
process twice or one that stands still, to restore one that was not suspended. A file `refuse` in
ROOM makes it refuse everything, a file `full` means that the devices have no room.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def suspend(room: Path, pids: list[str]) -> str:
    """Note that all of them are; what is wrong, if anything is."""
    if (room / "refuse").exists():
        return "CUDA_ERROR_NOT_SUPPORTED (801)"
    for pid in pids:
        if (room / pid).exists():
            return f"process {pid} is suspended already"
        if ") T " in Path(f"/proc/{pid}/stat").read_text():
            return f"process {pid} stands still"
    for pid in pids:
        (room / pid).touch()
    return ""


def restore(room: Path, pids: list[str]) -> str:
    """The way back."""
    if (room / "full").exists():
        return "CUDA_ERROR_OUT_OF_MEMORY (2)"
    for pid in pids:
        if not (room / pid).exists():
            return f"process {pid} is not suspended"
    for pid in pids:
        (room / pid).unlink()
    return ""


def uses_device(pid: str) -> bool:
    """Whether a process is there and one that counts."""
    try:
        return b"-c" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2]
    except OSError:
        return False


if __name__ == "__main__":
    folder, what, everybody = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    users = [pid for pid in everybody if uses_device(pid)]
    error = (suspend if what == "suspend" else restore)(folder, users)
    sys.stdout.write(json.dumps({"moved": [] if error else users, "error": error}))
