"""Moves all that processes hold on their GPUs to host memory with the CUDA driver, and back.

    python -m weft.node.asleep.cuda_checkpoint suspend PID...
    python -m weft.node.asleep.cuda_checkpoint restore PID...
    python -m weft.node.asleep.cuda_checkpoint check

Drivers of CUDA 12.8 and newer can. The processes need not know; they wait inside their next call
of CUDA. The driver refuses clients of MPS. Prints one JSON object: `moved` and `error`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

LIBRARY = "libcuda.so.1"
LOCK_MS = 30_000  # for kernels in flight to end
NOT_SUPPORTED = 801
VERBS = ("Lock", "Checkpoint", "Restore", "Unlock")


class DriverError(Exception):
    """The driver said no."""


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class CudaDriver:
    """The calls of libcuda that are used here; DriverError where it has none."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DriverError(f"there is no CUDA driver here: {error}") from error
        try:
            self._calls = {verb: self._cuda[f"cuCheckpointProcess{verb}"] for verb in VERBS}
        except AttributeError as error:
            raise DriverError(f"the CUDA driver is older than 12.8: {error}") from error
        self._check("cuInit", self._cuda.cuInit(0))

    def suspend(self, pid: int) -> None:
        """To host memory; the process then waits in its next call of CUDA."""
        args = _LockArgs(timeout_ms=LOCK_MS)
        self._call("Lock", pid, ctypes.byref(args))
        try:
            self._call("Checkpoint", pid, None)
        except DriverError:
            self._call("Unlock", pid, None)
            raise

    def restore(self, pid: int) -> None:
        """Move a process back to its GPU, and let it go on."""
        self._call("Restore", pid, None)
        self._call("Unlock", pid, None)

    def _call(self, verb: str, pid: int, args: object) -> None:
        self._check(f"cuCheckpointProcess{verb}", self._calls[verb](ctypes.c_int(pid), args))

    def _check(self, name: str, code: int) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorName(code, ctypes.byref(text))
        word = text.value.decode() if text.value else "unknown error"
        hint = "; clients of MPS cannot be suspended" if code == NOT_SUPPORTED else ""
        raise DriverError(f"{name}: {word} ({code}){hint}")


def uses_gpu(pid: int) -> bool:
    """True if a process has a GPU open."""
    try:
        links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return any(link.startswith("/dev/nvidia") and link[-1].isdigit() for link in links)


def move(
    pids: Sequence[int], forth: Callable[[int], None], back: Callable[[int], None]
) -> tuple[list[int], str]:
    """Move all of them or none: those that were moved, and what went wrong."""
    moved: list[int] = []
    for pid in pids:
        try:
            forth(pid)
        except DriverError as error:
            undone = [f"process {pid} stays where it is: {why}" for pid, why in _undo(moved, back)]
            return [], "; ".join([f"process {pid}: {error}", *undone])
        moved.append(pid)
    return moved, ""


def _undo(moved: Sequence[int], back: Callable[[int], None]) -> list[tuple[int, str]]:
    failed: list[tuple[int, str]] = []
    for pid in reversed(moved):
        try:
            back(pid)
        except DriverError as error:
            failed.append((pid, str(error)))
    return failed


def main(what: str, pids: Sequence[int]) -> int:
    """Do it, and print what happened to it."""
    moved: list[int] = []
    try:
        driver = CudaDriver()
        error = ""
        if what == "suspend":
            users = [pid for pid in pids if uses_gpu(pid)]
            moved, error = move(users, driver.suspend, driver.restore)
        elif what == "restore":
            moved, error = move(pids, driver.restore, driver.suspend)
    except DriverError as failure:
        error = str(failure)
    sys.stdout.write(json.dumps({"moved": moved, "error": error}) + "\n")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], [int(text) for text in sys.argv[2:]]))
