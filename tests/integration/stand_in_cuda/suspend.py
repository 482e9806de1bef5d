"""Suspends programs that use the stand-in for a GPU: `suspend.py GPU suspend|restore PID...`.

What they hold is put aside in the device's file. As with the real driver, all are moved or none,
and a program cannot come back before there is room for what it held.
"""

from __future__ import annotations

import fcntl
import json
import struct
import sys
from pathlib import Path

ROW = struct.Struct("qQQ")  # pid, held, put aside


def move(rows: list[list[int]], total: int, what: str, pids: set[int]) -> tuple[list[int], str]:
    """Change the rows; the processes that were moved, and what went wrong."""
    own = [row for row in rows if row[0] in pids and row[1 if what == "suspend" else 2]]
    if what == "restore" and sum(row[1] for row in rows) + sum(row[2] for row in own) > total:
        return [], "CUDA_ERROR_OUT_OF_MEMORY (2)"
    for row in own:
        row[1], row[2] = row[2], row[1]
    return [row[0] for row in own], ""


def main(gpu: Path, what: str, pids: set[int]) -> int:
    """Do it under the lock of the device."""
    with gpu.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (total,) = struct.unpack("Q", file.read(8))
        rows = [[*row] for row in ROW.iter_unpack(file.read())]
        for row in rows:
            if row[0] and not Path(f"/proc/{row[0]}").exists():
                row[:] = [0, 0, 0]
        moved, error = move(rows, total, what, pids)
        file.seek(8)
        file.write(b"".join(ROW.pack(*row) for row in rows))
    sys.stdout.write(json.dumps({"moved": moved, "error": error}))
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], {int(pid) for pid in sys.argv[3:]}))
